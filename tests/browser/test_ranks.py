"""A rank is slowed, and the job's page says which: outlined among the ranks, in words, with its numbers and its log."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.plane import Plane, spec, until
from playwright.sync_api import Browser, Page, expect

from shardyard import Client
from shardyard.api import control

SLOW_MS = 240_000
AXE = Path(control.__file__).parent / "dashboard" / "node_modules" / "axe-core" / "axe.min.js"
FOUND = """
async () => {
  const { violations } = await axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"] });
  return violations.map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map((node) => node.html + " " + node.failureSummary).join(" | ")}`);
}
"""
SHOTS = Path(control.__file__).parents[1] / "build" / "screenshots"


@pytest.fixture(scope="module", autouse=True)
def faults() -> Iterator[None]:
    """The control plane that is started next lets ranks be struck."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHARDYARD_FAULT_INJECTION", "true")
        yield


@pytest.fixture
def page(browser: Browser, url: str) -> Iterator[Page]:
    """A fresh page of the dashboard; what it complains of on its console fails the test."""
    complaints: list[str] = []
    context = browser.new_context(base_url=url, viewport={"width": 1280, "height": 1600})
    opened = context.new_page()
    opened.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
    opened.on("pageerror", lambda error: complaints.append(f"uncaught: {error}"))
    yield opened
    context.close()
    assert complaints == []


@pytest.mark.slow
def test_the_slowed_rank_is_seen_among_the_ranks(page: Page, plane: Plane) -> None:
    quiet = {"eval": {"batches": 1}, "checkpoint": {"final": False}, "snapshot": {"every": 0}}
    with plane.client() as client:
        job = client.submit(spec("slowed", steps=1_000_000, layout={"data": 4, "zero": 1}, **quiet))
        page.goto(f"/jobs/{job.id}")
        ranks = page.get_by_role("region", name="Ranks")
        expect(ranks.get_by_role("gridcell")).to_have_count(4, timeout=SLOW_MS)
        client.inject_fault(job.id, "slow-rank", rank=2, by_ms=200, for_s=600)

        expect(ranks.get_by_text(re.compile(r"^rank 2 computes \d+ ms longer than its peers$"))).to_be_visible(
            timeout=SLOW_MS
        )
        slow = ranks.get_by_role("gridcell", name=re.compile("^rank 2, data 2, .*longer than its peers"))
        expect(slow).to_have_class(re.compile("slow"))
        slow.click()
        expect(ranks.get_by_role("region", name="Rank 2")).to_contain_text("data 2 on")
        page.keyboard.press("ArrowLeft")
        expect(ranks.get_by_role("region", name="Rank 1")).to_be_visible()
        until(lambda: _samples(client, job.id) > 2, 240, "three samples")
        expect(ranks.get_by_role("slider", name="Sample")).to_be_visible()

        resources = page.get_by_role("region", name="Memory and traffic")
        expect(resources.get_by_role("row", name=re.compile("data reduce-scatter"))).to_contain_text("1.000")
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            SHOTS.mkdir(parents=True, exist_ok=True)
            page.screenshot(path=SHOTS / f"ranks-{scheme}.png", full_page=True)
            page.evaluate(AXE.read_text())
            assert page.evaluate(FOUND) == []

        ranks.get_by_role("link", name="Its log").click()
        expect(page.get_by_role("combobox", name="Rank", exact=True)).to_have_value("1")
        client.cancel(job.id)


def _samples(client: Client, job: str) -> int:
    return len(client.ranks(job, limit=3).items)
