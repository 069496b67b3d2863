"""An ended job is pinned, retried, deleted and restored on its page and in the list."""

from collections.abc import Iterator

import pytest
from harness.control_plane import ControlPlane
from harness.page import assert_accessible, opened
from harness.patience import PATIENCE_MS, PATIENCE_S
from playwright.sync_api import Browser, Page, expect

pytestmark = pytest.mark.full


@pytest.fixture
def page(browser: Browser, url: str, token: str) -> Iterator[Page]:
    """Chromium reports the answer 410 on the page's console."""
    with opened(browser, url, token, refusals=["410"]) as page:
        yield page


def test_a_deleted_job_is_restored_on_its_page_and_in_the_list(page: Page, plane: ControlPlane) -> None:
    with plane.client() as client:
        job = client.submit({"name": "errs", "command": "exit 3"})
        assert client.wait(job.id, timeout_s=PATIENCE_S).state == "failed"
        page.goto(f"/jobs/{job.id}")
        actions = page.get_by_role("group", name="Actions")
        actions.get_by_role("button", name="Pin", exact=True).click()
        expect(actions.get_by_role("button", name="Unpin")).to_be_visible(timeout=PATIENCE_MS)
        expect(actions.get_by_role("button", name="Delete")).to_have_count(0)
        actions.get_by_role("button", name="Unpin").click()
        actions.get_by_role("button", name="Delete").click()
        page.get_by_role("button", name="Delete the job").click()
        expect(page.get_by_role("alert")).to_contain_text("The job was deleted", timeout=PATIENCE_MS)
        assert job.id in [one.id for one in client.jobs(deleted=True).items]
        assert_accessible(page)
        page.get_by_role("button", name="Undo").click()
        expect(page.get_by_role("heading", name="errs")).to_be_visible(timeout=PATIENCE_MS)
        expect(page.get_by_text("The job was deleted")).to_have_count(0)

        page.goto("/")
        row = page.get_by_role("row").filter(has_text="errs")
        row.get_by_role("checkbox", name="Select errs").check()
        page.get_by_role("button", name="Delete 1 job").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete 1 job").click()
        expect(row).to_have_count(0, timeout=PATIENCE_MS)
        page.get_by_role("status").get_by_role("button", name="Undo").click()
        expect(row).to_have_count(1, timeout=PATIENCE_MS)
        assert client.job(job.id).deleted_at is None

        page.goto(f"/jobs/{job.id}")
        actions.get_by_role("button", name="Retry").click()
        expect(page.get_by_role("link", name=job.id)).to_be_visible(timeout=PATIENCE_MS)
        retried = client.job(job.id).retried_by
        assert retried is not None and page.url.endswith(retried)
