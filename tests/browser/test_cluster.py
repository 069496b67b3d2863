"""The tabs of the cluster's page with a day of use, a queue and a history, without a cluster; each as it looks.

The screenshots lie in `build/screenshots/`, to be looked at.
"""

import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from harness.live_server import LiveServer
from harness.page import SHOTS, assert_accessible, opened
from playwright.sync_api import Browser, Page, expect

from shardyard.service.dispatch import cluster_history
from shardyard.service.ids import gang_name
from shardyard.service.jobs import submit as submitting
from shardyard.service.spec import kind_of
from shardyard.service.store import cluster_samples, nodes

#: Seconds between two samples of the day.
EVERY_S = 300


def _node(number: int, **changes: Any) -> dict[str, Any]:
    used = {"cpu_used": 8.0, "gpu_used": 0.0, "memory_bytes": 1 << 40, "host_memory_bytes": 1 << 40}
    labels = {"gpu_model": "", "zone": "", "rail": "", "domain": "", "image": "", "seen_at": time.time()}
    same = {"id": f"n{number}", "host": f"gpu-{number}", "alive": True, "cpu": 64.0, "gpu": 0.0, "gangs": []}
    return {**same, **used, **labels, **changes}


async def _past(stage: LiveServer, job: str) -> None:
    """Four machines, of which one is lost, and a day of samples."""
    now = time.time()
    rows = [_node(number) for number in range(4)]
    rows[0]["gangs"] = [{"gang": gang_name(job, 1), "cpu": 8.0, "gpu": 0.0}]
    seen: list[list[dict[str, Any]]] = [rows, [_node(0), *rows[1:3], _node(3, alive=False)]]
    for at, found in zip((now - 1800, now - 600), seen, strict=True):
        async with stage.store.write() as tx:
            before: list[Mapping[str, Any]] = [dict(row) for row in await nodes.all_nodes(tx, "default")]
            await nodes.replace(tx, found)
            await cluster_history.note_changes(tx, "default", before, found, at)
    async with stage.store.write() as tx:
        for at in range(int(now) - 86_000, int(now), EVERY_S):
            used = 40.0 + 30 * math.sin(at / 9000)
            whole = {"nodes/alive": 4.0, "devices/cpu/all": 128.0, "devices/cpu/used": used}
            whole |= {"devices/cpu/free": 128 - used, "devices/cpu/cordoned": 0.0}
            whole |= {"user/cpu/ada": used / 2, "user/cpu/bob": used / 2, "team/cpu/search": used}
            one = {"cpu": 50 + 30 * math.sin(at / 5000), "gpu_utilization/0": 90.0, "memory_used": 6e9}
            await cluster_samples.add(tx, "default", at, {cluster_samples.WHOLE: whole, "n0": one, "n1": one})


@pytest.fixture(scope="module")
def running(stage: LiveServer) -> str:
    """A job that runs; another waits for more ranks than are free."""
    layout = {"data": 2}
    train = {"steps": 600, "global_batch": 16, "layout": layout}
    placed = stage.placed({"name": "llama-runs", "train": train})
    placed.state("starting")
    placed.state("running")
    for number in range(2):
        spec = {"name": f"waits-{number}", "train": {**train, "layout": {"data": 16}}}
        parsed = kind_of(spec).model_validate(spec)
        stage.do(submitting.submit(stage.store, stage.settings, parsed, None, "", "tester"))
    stage.do(_past(stage, placed.id))
    return placed.id


@pytest.fixture
def page(browser: Browser, stage: LiveServer, running: str) -> Iterator[Page]:
    """A fresh page; what it complains of on its console fails the test."""
    with opened(browser, stage.url, stage.token, height=1400) as page:
        yield page


@pytest.mark.full
def test_the_tabs_of_the_cluster(page: Page) -> None:
    page.goto("/cluster")
    expect(page.get_by_role("article", name="gpu-0")).to_be_visible()
    page.get_by_role("link", name="Use over time", exact=True).click()
    expect(page).to_have_title("Use over time · Cluster · Shardyard")
    page.get_by_role("combobox", name="Range").select_option("Last day")
    expect(page.get_by_role("figure", name="CPU ranks by user")).to_be_visible()
    expect(page.get_by_role("figure", name="gpu-0 (% in use)").locator("canvas")).to_be_visible()
    assert_accessible(page)
    page.screenshot(path=SHOTS / "cluster-use.png")
    page.get_by_role("button", name="All metrics of gpu-0").click()
    expect(page.get_by_role("figure", name="Memory in use")).to_be_visible()
    page.reload()
    expect(page.get_by_role("region", name="gpu-0 over time").get_by_role("figure")).to_have_count(3)
    page.get_by_role("link", name="Queue", exact=True).click()
    waiting = page.get_by_role("region", name="Waiting")
    expect(waiting.get_by_role("row")).to_have_count(1 + 2)
    expect(page.get_by_role("region", name="With devices").get_by_role("link", name="llama-runs")).to_be_visible()
    assert_accessible(page)
    page.screenshot(path=SHOTS / "cluster-queue.png")
    page.get_by_role("link", name="History", exact=True).click()
    expect(page.get_by_role("combobox", name="Machine", exact=True)).to_have_value("n0")
    expect(page.get_by_role("region", name="What ran").get_by_role("row")).to_have_count(1 + 1)
    page.get_by_role("combobox", name="Machine", exact=True).select_option("All machines")
    expect(page.get_by_role("region", name="Device time by user")).to_contain_text("tester")
    lost = page.get_by_role("region", name="Changes of machines").get_by_role("row").filter(has_text="lost")
    expect(lost).to_contain_text("Ray reports that it is dead; no gang was on it.")
    assert_accessible(page)
    page.screenshot(path=SHOTS / "cluster-history.png")
