"""A checkpoint is named, and its version gets an alias, in a real browser; the files of a checkpoint are downloaded there."""

from pathlib import Path

import pytest
from harness.live_server import LiveJob, LiveServer
from harness.page import SHOTS, assert_accessible, signed_in
from harness.stored_checkpoints import FILE, save_checkpoint
from playwright.sync_api import Browser, expect

SPEC = {"name": "poet", "train": {"steps": 20, "global_batch": 8, "layout": {"data": 2}, "data": {"seq_len": 64}}}


@pytest.fixture(scope="module")
def job(stage: LiveServer) -> LiveJob:
    """A running job with a checkpoint of step 10."""
    placed = stage.placed(SPEC)
    placed.state("starting")
    placed.state("running")
    placed.emit(("checkpoint", save_checkpoint(Path(stage.settings.storage) / placed.id, 10, b"weights")))
    return placed


@pytest.mark.full
@pytest.mark.parametrize("width", [1280, 360])
def test_a_checkpoint_is_taken_home_and_named(browser: Browser, stage: LiveServer, job: LiveJob, width: int) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    context = signed_in(browser, stage.url, stage.token, viewport={"width": width, "height": 900})
    page = context.new_page()
    page.goto(f"/jobs/{job.id}/checkpoints")
    page.get_by_role("button", name="Files step 10").click()
    with page.expect_download() as download:
        page.get_by_role("link", name=f"Download {FILE}").click()
    assert Path(download.value.path()).read_bytes() == b"weights"
    assert_accessible(page)
    page.get_by_role("button", name="Name… step 10").click()
    model = f"poet-{width}"
    page.get_by_role("textbox", name="Model").fill(model)
    page.get_by_role("textbox", name="Notes").fill("the first that rhymes")
    page.get_by_role("button", name="Create the version").click()
    page.get_by_role("dialog").get_by_role("link", name=model).click()
    expect(page.get_by_text("the first that rhymes")).to_be_visible()
    page.get_by_role("button", name="Set alias… version 1").click()
    page.get_by_role("button", name="Set the alias").click()
    expect(page.get_by_text("production set to version 1")).to_be_visible()
    assert_accessible(page)
    page.screenshot(path=SHOTS / f"model-{width}.png", full_page=True, animations="disabled")
    assert int(page.evaluate("document.documentElement.scrollWidth")) <= width
    page.get_by_role("link", name="Models", exact=True).first.click()
    expect(page.get_by_text("production → 1").first).to_be_visible()
    assert_accessible(page)
    context.close()
