"""A rank is slowed, and the job's page says which: outlined among the ranks, in words, with its numbers and its log."""

import asyncio
import random
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from harness.control_plane import ControlPlane, spec, until
from harness.page import SHOTS, assert_accessible, opened
from harness.patience import PATIENCE_MS, PATIENCE_S
from playwright.sync_api import Browser, Page, expect

from shardyard import Client
from shardyard.service.policies.slow_ranks import WINDOWS
from shardyard.service.settings import Settings
from shardyard.service.store import rank_samples
from shardyard.service.store.engine import Store
from shardyard.service.store.packing.rank_sample import row_of
from shardyard.strategies.layout import Layout
from shardyard.workers.messages.event import RankMetricsEvent, read


@pytest.fixture
def page(browser: Browser, url: str, token: str) -> Iterator[Page]:
    """A fresh page of the dashboard; what it complains of on its console fails the test."""
    with opened(browser, url, token, height=1600) as page:
        yield page


@pytest.mark.full
def test_the_slowed_rank_is_seen_among_the_ranks(page: Page, plane: ControlPlane) -> None:
    quiet = {"eval": {"batches": 1}, "checkpoint": {"final": False}, "snapshot": {"every": 0}}
    with plane.client() as client:
        job = client.submit(spec("slowed", steps=1_000_000, layout={"data": 4, "zero": 1}, **quiet))
        page.goto(f"/jobs/{job.id}/ranks")
        ranks = page.get_by_role("region", name="Ranks")
        expect(ranks.get_by_role("gridcell")).to_have_count(4, timeout=PATIENCE_MS)
        client.inject_fault(job.id, "slow-rank", rank=2, delay_ms=200, duration_s=600)

        expect(ranks.get_by_text(re.compile(r"^rank 2 computes \d+ ms longer than its peers$"))).to_be_visible(
            timeout=PATIENCE_MS
        )
        slow = ranks.get_by_role("gridcell", name=re.compile("^rank 2, data 2, .*longer than its peers"))
        expect(slow).to_have_class(re.compile("slow"))
        slow.click()
        expect(ranks.get_by_role("region", name="Rank 2")).to_contain_text("data 2 on")
        page.keyboard.press("ArrowLeft")
        expect(ranks.get_by_role("region", name="Rank 1")).to_be_visible()
        until(lambda: _samples(client, job.id) > 2, PATIENCE_S, "three samples")
        expect(ranks.get_by_role("slider", name="Sample")).to_be_visible()

        resources = page.get_by_role("region", name="Memory and traffic")
        expect(resources.get_by_role("row", name=re.compile("data reduce-scatter"))).to_contain_text("1.000")
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            SHOTS.mkdir(parents=True, exist_ok=True)
            page.screenshot(path=SHOTS / f"ranks-{scheme}.png", full_page=True)
            assert_accessible(page)

        ranks.get_by_role("link", name="Log of this rank").click()
        expect(page).to_have_url(re.compile(f"/jobs/{job.id}/logs\\?rank=1$"))
        expect(page.get_by_role("combobox", name="Rank", exact=True)).to_have_value("1")
        client.cancel(job.id)


def _samples(client: Client, job: str) -> int:
    return len(client.ranks(job, limit=3).items)


LARGE = Layout(pipeline=8, data=8, tensor=8)
#: Milliseconds that each of some changes of colour takes, from the choice to the next frame.
RECOLOURED = """
async () => {
  const choice = document.querySelector(".job-ranks select");
  const took = [];
  for (const measure of ["step", "wait", "memory", "compute", "step", "compute"]) {
    const began = performance.now();
    choice.value = measure;
    choice.dispatchEvent(new Event("change", { bubbles: true }));
    await new Promise(requestAnimationFrame);
    took.push(Math.round(performance.now() - began));
  }
  return took;
}
"""


@pytest.mark.full
def test_512_ranks_with_2000_samples_are_looked_at_bit_by_bit(page: Page, plane: ControlPlane) -> None:
    sizes: dict[str, int] = {}
    page.on("response", lambda answer: sizes.update({answer.url: int(answer.headers.get("content-length", 0))}))
    with plane.client() as client:
        job = client.cancel(client.submit(spec("large", steps=1_000_000)).id)  # more than it may train before that
        client.wait(job.id, PATIENCE_S)
    with ThreadPoolExecutor(1) as thread:  # this one has Playwright's loop
        thread.submit(asyncio.run, _fill(plane, job.id)).result()
    page.goto(f"/jobs/{job.id}/ranks")
    ranks = page.get_by_role("region", name="Ranks")
    expect(ranks.locator("[role=gridcell]")).to_have_count(512)
    expect(ranks.get_by_text("rank 77 computes 70 ms longer than its peers")).to_be_visible()
    print("recoloured within ms:", page.evaluate(RECOLOURED))
    page.screenshot(path=SHOTS / "ranks-512.png", full_page=True)
    slider = ranks.get_by_role("slider", name="Sample")
    slider.focus()
    for key in ("Home", "ArrowRight", "PageUp"):
        page.keyboard.press(key)
    expect(ranks.get_by_text(re.compile(r"^step \d{1,3}, "))).to_be_visible()
    ranks.get_by_role("button", name="Newest").click()
    expect(ranks.get_by_text("rank 77 computes 70 ms longer than its peers")).to_be_visible()
    asked = [size for url, size in sizes.items() if "/ranks?" in url]
    answered = [size for url, size in sizes.items() if "/v1/" in url]
    assert len(asked) >= 2 and max(answered) <= 300_000, sizes


async def _fill(plane: ControlPlane, job: str) -> None:
    """2,000 samples of which rank 77 is slow in each."""
    chosen = random.Random(1)
    rows: list[dict[str, Any]] = []
    for n in range(20 + WINDOWS):  # in the first of which it is not known yet
        rows.append(row_of(1.7e9 + n, 1, LARGE, read(RankMetricsEvent, _sample(chosen)), rows[-1] if rows else None))
    rows = rows[WINDOWS:]
    store = Store(Settings(data_dir=plane.data).database)
    try:
        async with store.write() as tx:
            filled = [rows[n % 20] | {"step": n, "ts": 1.7e9 + 5 * n} for n in range(1, 2001)]
            await rank_samples.append(tx, job, filled)
    finally:
        await store.close()


def _sample(chosen: random.Random) -> dict[str, object]:
    size = LARGE.world_size
    own = [round(chosen.uniform(0.049, 0.051), 5) for _ in range(size)]
    own[77] = 0.12
    waited = [0.2 - seconds for seconds in own]
    memory = [chosen.randrange(30 << 30, 60 << 30) for _ in range(size)]
    lists = {"step_s": [0.2] * size, "busy_s": own, "wait_s": waited, "memory": memory, "memory_of": "allocated"}
    where = {"nodes": [f"{n:056x}" for n in range(64)], "node_of": [rank // 8 for rank in range(size)]}
    return {"step": 1, "steps": 25, **lists, **where}
