"""A user asks the page what happens inside a step of a running pipeline, and sees it."""

from collections.abc import Iterator

import pytest
from harness.control_plane import ControlPlane, spec
from harness.page import opened
from playwright.sync_api import Browser, Page, expect


@pytest.fixture
def page(browser: Browser, url: str, token: str) -> Iterator[Page]:
    """A fresh page of the dashboard; what it complains of on its console fails the test."""
    with opened(browser, url, token) as page:
        yield page


@pytest.mark.full
def test_a_running_pipelines_step_is_traced_from_its_page(page: Page, plane: ControlPlane) -> None:
    layout = {"pipeline": 2, "schedule": "1f1b", "micro_batch": 2}
    with plane.client() as client:
        job = client.submit(spec("piped", steps=1_000_000, layout=layout, eval={}, checkpoint={"final": False})).id
    page.goto(f"/jobs/{job}/traces")
    expect(page.locator(".job-head .state-badge")).to_have_text("running")
    section = page.get_by_role("region", name="Step trace")
    section.get_by_role("button", name="Trace 3 steps").click()
    lanes = section.get_by_role("application")
    expect(lanes).to_be_visible()
    expect(section.locator(".lane-name")).to_have_text(["rank 0", "rank 1", "ideal 0", "ideal 1"])
    expect(section.get_by_text("measured,")).to_contain_text("ideal")
    assert lanes.locator(".span-forward").count() >= 2 and lanes.locator(".span-backward").count() >= 2

    lanes.focus()
    page.keyboard.press("ArrowRight")
    expect(section.locator(".lanes-chosen")).to_contain_text("Rank 0")
    whole = section.locator(".lanes-scale").text_content()
    page.keyboard.press("+")
    expect(section.locator(".lanes-scale")).not_to_have_text(whole or "")
    page.keyboard.press("0")
    expect(section.locator(".lanes-scale")).to_have_text(whole or "")

    section.get_by_text("Times by rank").click()
    expect(section.get_by_role("table").get_by_role("row")).to_have_count(3)
    with page.expect_download() as download:
        section.get_by_role("link", name="Download for Perfetto").click()
    assert download.value.suggested_filename.endswith(".json.gz")
    with plane.client() as client:
        client.cancel(job)
