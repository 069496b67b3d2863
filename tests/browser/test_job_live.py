"""A user at the page of one job: it is opened again, gets a fault, and continues."""

import re
from collections.abc import Iterator

import pytest
from harness.control_plane import ControlPlane, spec, until
from harness.page import RECORDER, assert_accessible, open_tab, opened, write_spec
from harness.patience import PATIENCE_MS, PATIENCE_S
from harness.slow_model import write_slow_model
from playwright.sync_api import Browser, Page, expect

from shardyard.service.schemas.job import Job


@pytest.fixture(scope="module")
def job(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """Two ranks that train for longer than the tests, and save often."""
    train = {
        "model": write_slow_model(tmp_path_factory.mktemp("resting")),
        "layout": {"data": 2, "micro_batch": 4},
        "checkpoint": {"every": 20, "keep": 500},
        "eval": {"every": 20, "batches": 1},
    }
    with plane.client() as client:
        found = client.submit(spec("patient", steps=1_000_000, **train))
        until(lambda: client.job(found.id).checkpoint is not None, PATIENCE_S, "a checkpoint")
        yield found
        client.cancel(found.id)


@pytest.fixture
def page(browser: Browser, url: str, token: str) -> Iterator[Page]:
    """A fresh page; what it complains of on its console fails the test."""
    with opened(browser, url, token) as page:
        yield page


@pytest.mark.full
def test_a_page_that_is_opened_again_goes_on_without_a_gap(page: Page, job: Job) -> None:
    page.add_init_script(RECORDER)
    page.goto(f"/jobs/{job.id}")
    for _ in range(2):
        page.wait_for_function("() => window.steps.length > 15", timeout=PATIENCE_MS)
        reported, steps = page.evaluate("[window.reported, window.steps]")
        assert steps == list(range(reported + 1, reported + 1 + len(steps)))
        page.reload()


def test_a_rank_is_killed_from_the_page_and_its_story_read(page: Page, job: Job) -> None:
    page.goto(f"/jobs/{job.id}")
    page.get_by_role("button", name="Inject a fault…").click()
    dialog = page.get_by_role("dialog", name="Inject a fault into patient")
    assert_accessible(page)
    dialog.get_by_role("spinbutton", name="Rank").fill("1")
    dialog.get_by_role("button", name="Inject", exact=True).click()
    expect(dialog).to_be_hidden()
    article = page.get_by_role("article").filter(has_text="rank_lost").first
    expect(article).to_contain_text("Rank 1", timeout=PATIENCE_MS)
    expect(article).to_contain_text("The gang was repaired in place as generation 2", timeout=PATIENCE_MS)
    expect(page.get_by_role("list", name="Budgets")).to_contain_text("1 of 20")
    expect(page.get_by_role("region", name="History")).to_contain_text("kill-rank")
    expect(page.get_by_role("region", name="Timeline")).to_contain_text("generation 2")
    expect(page.locator(".job-head .state-badge")).to_have_text("running", timeout=PATIENCE_MS)
    assert_accessible(page)


@pytest.mark.full
def test_a_job_goes_on_from_a_checkpoint_on_another_layout(page: Page, plane: ControlPlane, job: Job) -> None:
    page.goto(f"/jobs/{job.id}/checkpoints")
    page.get_by_role("link", name=re.compile("Resume from here")).first.click()
    text = page.locator(".cm-content")
    expect(text).to_contain_text(re.compile(f"resume_from: .*{job.id}/step-"))
    written = text.inner_text()
    step = int(re.findall(r"step-(\d+)", written)[0])
    changed = written.replace("  layout:\n", "  layout:\n    zero: 1\n", 1)
    assert changed != written
    write_spec(page, changed)
    expect(page.get_by_role("region", name="What would run")).to_contain_text("ZeRO-1")
    page.get_by_role("button", name="Submit").click()
    expect(page).to_have_url(re.compile("/jobs/job-"))
    child = page.url.rpartition("/")[2]
    assert child != job.id
    with plane.client() as client:
        try:
            until(lambda: client.job(child).progress is not None, PATIENCE_S, "a step of it")
            progress = client.job(child).progress
            assert progress is not None and progress.step > step
            assert client.job(child).parent == job.id
            expect(page.locator("[data-fact='Loss']")).to_have_text(re.compile(r"^\d"), timeout=PATIENCE_MS)
            open_tab(page, "Spec")
            diff = page.get_by_role("region", name="Differences of the specs")
            expect(diff).to_contain_text("train.layout.zero")
            expect(diff.get_by_role("link", name="patient")).to_be_visible()
        finally:
            client.cancel(child)


@pytest.mark.full
def test_a_checkpoint_is_verified_and_exported_from_the_page(page: Page, plane: ControlPlane) -> None:
    with plane.client() as client:
        ended = client.submit(spec("saved", steps=2, layout={"data": 1}))
        until(lambda: client.job(ended.id).state == "succeeded", PATIENCE_S, "its end")
    page.goto(f"/jobs/{ended.id}/checkpoints")
    checkpoints = page.get_by_role("region", name="Checkpoints")
    checkpoints.get_by_role("button", name="Verify step 2").click()
    expect(checkpoints).to_contain_text("Valid: 1 file matches its checksum", timeout=PATIENCE_MS)
    checkpoints.get_by_role("button", name="Export… step 2").click()
    dialog = page.get_by_role("dialog", name="Export step 2 of saved")
    assert_accessible(page)
    dialog.get_by_role("button", name="Export", exact=True).click()
    expect(dialog).to_be_hidden()
    expect(checkpoints).to_contain_text("export-00000002", timeout=PATIENCE_MS)
    assert (plane.storage / ended.id / "export-00000002" / "config.json").exists()
    assert_accessible(page)
