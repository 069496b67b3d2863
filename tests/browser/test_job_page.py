"""A job's page of a million steps and 512 ranks, without a cluster: it opens, zooms, searches, and stays small.

The screenshots lie in `build/screenshots/`, to be looked at.
"""

import json
import re
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from harness.control_plane import until
from harness.live_server import HIGH, MILLION, SPIKE, LiveJob, LiveServer, store_million
from harness.page import SHOTS, assert_accessible, open_tab, opened, signed_in
from harness.patience import PATIENCE_S
from playwright.sync_api import Browser, Locator, Page, Response, expect

pytestmark = pytest.mark.full  # a million steps take a while to be stored


@pytest.fixture
def sizes() -> list[tuple[int, str]]:
    """Bytes and address of each answer that a page got, its own files and streams aside."""
    return []


@pytest.fixture
def page(browser: Browser, stage: LiveServer, sizes: list[tuple[int, str]]) -> Iterator[Page]:
    """A fresh page; what it complains of on its console fails the test."""
    with opened(browser, stage.url, stage.token) as page:
        page.on("response", lambda answer: _weigh(answer, sizes))
        yield page


def _weigh(answer: Response, sizes: list[tuple[int, str]]) -> None:
    if "/v1/" in answer.url and not answer.url.endswith("/events"):
        sizes.append((int(answer.headers.get("content-length", "0")), answer.url))


@pytest.fixture(scope="module")
def million(stage: LiveServer) -> LiveJob:
    """512 ranks, a million steps with one spike, incidents, checkpoints, validations and lines."""
    layout = {"data": 512}
    train = {"steps": 2_000_000, "global_batch": 512, "layout": layout, "data": {"seq_len": 64}}
    placed = stage.placed({"name": "million", "train": train})
    begun = time.time() - 3600
    placed.state("starting")
    placed.state("running")
    placed.emit(("plan", {"parameters": 803_968, "tokens_per_step": 32_768, "train_tokens": 31_000_000}))
    for number in range(1, 7):
        rank, everybody = 17 * number, list(range(512))
        waiting = {"ranks": everybody[:500], "group": "data", "members": everybody, "seq": 47, "op": "all_reduce"}
        hang = {
            "cause": "hang",
            "rank": rank,
            "node": "f8d3ab314835",
            "generation": number,
            "step": 1000 * number,
            "message": "it stands still while others wait for it",
            "log": ["step 120", "…"],
            "stacks": [{"ranks": everybody, "stack": "MainThread\n  loop.py:120 _train_step"}],
            "waiting": [{**waiting, "seconds": 31.4}],
        }
        repaired = {
            "cause": "hang",
            "generation": number + 1,
            "restored": 1000,
            "step": 1001,
            "seconds": 2.3,
            "spares": [],
        }
        placed.emit(("incident", hang), since=begun + 500 * number)
        placed.state("recovering", "hang")
        placed.state("running", "repaired")
        placed.emit(("repair", repaired), since=begun + 500 * number + 2)
    saved = {"bytes": 14_600_000, "seconds": 0.21, "held_s": 0.01}
    path = f"/checkpoints/{placed.id}/step-{{:08d}}"
    placed.emit(*(("checkpoint", {"step": n, "path": path.format(n), **saved}) for n in range(10_000, MILLION, 10_000)))
    placed.emit(*(("eval", {"step": n, "loss": 2.1 + 3000 / n}) for n in range(1000, MILLION, 1000)))
    said = [f"UserWarning: number {n}" if n % 50 == 0 else f"line {n} of a rank" for n in range(3000)]
    placed.emit(*(("log", {"rank": n % 512, "stream": "stdout", "first": n, "lines": [said[n]]}) for n in range(3000)))
    stage.do(store_million(stage.store, placed.id))
    return placed


def test_a_million_steps_open_zoom_and_stay_small(
    page: Page, stage: LiveServer, million: LiveJob, sizes: list[tuple[int, str]]
) -> None:
    curves: list[dict[str, Any]] = []
    page.on("response", lambda answer: curves.append(json.loads(answer.text())) if "/curves" in answer.url else None)
    page.goto(f"{stage.url}/jobs/{million.id}/metrics")
    expect(page.locator(".chart canvas")).to_have_count(6)
    expect(page.get_by_role("figure", name=re.compile("Loss scale"))).to_be_visible()
    until(lambda: bool(curves), PATIENCE_S, "the curves")
    whole = curves[-1]
    assert whole["last_step"] == MILLION and max(whole["series"]["loss"]["high"]) == HIGH
    page.get_by_label("Steps", exact=True).fill(str(SPIKE - 100))
    page.get_by_label("to", exact=True).fill(str(SPIKE + 100))
    page.get_by_role("button", name="Zoom").click()

    def has_come() -> bool:
        page.wait_for_timeout(50)
        return len(curves) > 1

    until(has_come, PATIENCE_S, "the range in full")
    part = curves[-1]
    assert part["width"] == 1 and part["series"]["loss"]["mean"][part["starts"].index(SPIKE)] == HIGH
    expect(page).to_have_url(re.compile(f"from={SPIKE - 100}&to={SPIKE + 100}"))
    page.get_by_role("button", name="All steps").click()
    expect(page).not_to_have_url(re.compile("from="))
    open_tab(page, "Overview")
    page.get_by_role("button", name="Earlier incidents").click()
    its_story_goes_back_to_its_first_line(page)
    open_tab(page, "Checkpoints")
    page.get_by_role("button", name="Earlier checkpoints").click()
    expect(page.get_by_role("region", name="Checkpoints").get_by_role("row")).to_have_count(21)
    open_tab(page, "Logs")
    page.get_by_label("Text").fill("number 29")
    expect(page.get_by_role("status").filter(has_text="found")).to_have_text("2 lines found.")
    page.get_by_role("button", name="UserWarning: number 2950").click()
    expect(page.locator("[data-marked]")).to_contain_text("number 2950")
    assert len(sizes) > 8
    assert max(sizes)[0] <= 300_000, max(sizes)


def its_story_goes_back_to_its_first_line(page: Page) -> None:
    """The last 500 events are validations, which the history does not show."""
    history = page.get_by_role("region", name="History")
    expect(history.get_by_role("listitem")).to_have_count(0)
    older = history.get_by_role("button", name="Older")
    for count, last in ((50, "990,000"), (50, "490,000"), (27, "running")):
        older.click()
        expect(history.get_by_role("listitem")).to_have_count(count)
        expect(history.get_by_role("listitem").first).to_contain_text(last)
    expect(history.get_by_text("queued", exact=True)).to_be_visible()
    expect(older).to_be_hidden()
    history.get_by_role("button", name="Newest").click()
    expect(history.get_by_role("listitem")).to_have_count(0)


def shown_step(chart: Locator) -> int:
    """The step that a chart's legend names, or the first of several."""
    text = chart.locator(".u-legend .u-value").first.text_content() or ""
    return int(text.partition("–")[0].replace(",", ""))


def test_a_range_drawn_in_one_chart_is_that_of_all(page: Page, stage: LiveServer, million: LiveJob) -> None:
    page.goto(f"{stage.url}/jobs/{million.id}/metrics?log=1&smooth=0.5")
    expect(page.get_by_label("Log axis")).to_be_checked()
    charts = page.locator(".chart")
    expect(charts).to_have_count(6)
    until(
        lambda: shown_step(charts.first) == MILLION, PATIENCE_S, "the last step, which shares its bucket with thousands"
    )
    over = charts.nth(1).locator(".u-over")
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.25, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, middle, steps=5)
    page.mouse.up()
    expect(page).to_have_url(re.compile(r"log=1.*from=\d+&to=\d+|from=\d+&to=\d+"))
    found = re.search(r"from=(\d+)&to=(\d+)", page.url)
    assert found is not None
    low, high = int(found[1]), int(found[2])
    assert [low, high] == pytest.approx([250_000, 500_000], abs=5000)

    def begins(at: int) -> bool:
        return low - 5000 <= shown_step(charts.nth(at)) <= low + 15_000

    page.mouse.move(box["x"] + 2, middle)
    for at in range(6):
        until(partial(begins, at), PATIENCE_S, f"chart {at} to begin at {low}")
    page.reload()
    expect(page.get_by_label("Steps", exact=True)).to_have_value(str(low))
    over.dblclick()
    expect(page).not_to_have_url(re.compile("from="))
    expect(page.get_by_role("slider", name="Smoothing")).to_have_value("0.5")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_the_page_is_fit_to_be_seen(
    browser: Browser, stage: LiveServer, million: LiveJob, scheme: Any, width: int
) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    context = signed_in(browser, stage.url, stage.token, viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    page.goto(f"/jobs/{million.id}/metrics?smooth=0.6")
    for tab, whole, count in (("Metrics", ".chart canvas", 6), ("Overview", "article", 5), ("Checkpoints", "tr", 11)):
        open_tab(page, tab)
        expect(page.locator(whole)).to_have_count(count)
        page.screenshot(path=SHOTS / f"job-{tab.lower()}-{scheme}-{width}.png", full_page=True, animations="disabled")
        assert_accessible(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    context.close()
