"""Compare in a real browser, without a cluster: charts, table and differences of what two programs logged, by keyboard too.

The screenshots lie in `build/screenshots/`, to be looked at.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from harness.events import logged
from harness.live_server import LiveJob, LiveServer
from harness.page import SHOTS, assert_accessible, opened, signed_in
from playwright.sync_api import Browser, Page, expect

STEPS = 200


@pytest.fixture(scope="module")
def pair(stage: LiveServer) -> tuple[LiveJob, LiveJob]:
    """Two programs that logged a loss and an accuracy at every second step, the second one half as much loss; one logged more."""
    jobs = []
    for name, scale in (("tortoise", 2.0), ("hare", 1.0)):
        placed = stage.placed({"name": name, "command": ["python", "train.py", name]})
        placed.state("starting")
        placed.state("running")
        steps = range(0, STEPS, 2)
        values: dict[str, list[tuple[int, float | None]]] = {
            "train/loss": [(step, scale * 100 / (step + 100)) for step in steps],
            "val/acc": [(step, step / STEPS / scale) for step in steps],
        }
        if name == "hare":
            values["lr"] = [(0, 0.1)]
        placed.emit(logged(values))
        jobs.append(placed)
    return jobs[0], jobs[1]


@pytest.fixture
def page(browser: Browser, stage: LiveServer) -> Iterator[Page]:
    """A fresh page; what it complains of on its console fails the test."""
    with opened(browser, stage.url, stage.token) as page:
        yield page


def address(pair: tuple[LiveJob, LiveJob], more: str = "") -> str:
    return f"/compare?job={pair[0].id}&job={pair[1].id}{more}"


@pytest.mark.full
def test_programs_are_compared(page: Page, pair: tuple[LiveJob, LiveJob]) -> None:
    page.goto("/")
    for name in ("tortoise", "hare"):
        page.get_by_role("checkbox", name=f"Select {name}").check()
    page.get_by_role("group", name="Selected jobs").get_by_role("link", name="Compare").click()
    for name in ("lr", "train.loss", "val.acc"):  # a slash ends Playwright's pattern
        expect(page.get_by_role("figure", name=re.compile(f"^{name}")).locator("canvas")).to_be_visible()
    hare = page.get_by_role("region", name="Runs").get_by_role("row").filter(has_text="hare")
    page.get_by_role("radio", name="Baseline tortoise").check()
    expect(hare).to_contain_text("+0.495 (+100.0 %)")
    page.get_by_label("Table").select_option("lowest")
    expect(hare).to_contain_text("-0.3356 (-50.0 %)")
    page.get_by_role("radio", name="Baseline tortoise").press("ArrowDown")
    expect(page.get_by_role("radio", name="Baseline hare")).to_be_checked()
    page.get_by_label("Charts show the difference to hare").press("Space")
    loss = page.get_by_role("figure", name=re.compile("^train.loss, difference"))
    for end in ("tortoise ends at 0.3356", "hare ends at 0[.,]"):
        expect(loss).to_have_accessible_name(re.compile(f"Difference to hare.*{end}"))
    expect(loss.locator("canvas")).to_be_visible()
    assert_accessible(page)
    for setting in (f"base={pair[1].id}", "difference=1", "result=lowest"):
        expect(page).to_have_url(re.compile(f"[&]{setting}(&|$)"))
    page.reload()
    expect(page.get_by_label("Charts show the difference to hare")).to_be_checked()
    page.get_by_role("searchbox", name="Find metrics").fill("acc")
    expect(page.get_by_role("figure", name=re.compile("^val.acc"))).to_be_visible()
    expect(loss).to_have_count(0)


@pytest.mark.full
def test_the_list_of_jobs_has_columns_of_logged_metrics(page: Page, pair: tuple[LiveJob, LiveJob]) -> None:
    page.goto("/")
    page.get_by_role("button", name="Columns…").click()
    dialog = page.get_by_role("dialog", name="Columns")
    dialog.get_by_role("searchbox").fill("metric.val")
    dialog.get_by_role("checkbox", name="metric.val/acc").check()
    dialog.get_by_role("button", name="Close").click()
    head = page.get_by_role("columnheader", name="val/acc")
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "ascending")
    for name, value in (("tortoise", "0.495"), ("hare", "0.99")):
        row = page.get_by_role("row").filter(has=page.get_by_role("link", name=name))
        expect(row.locator(".job-table-chosen")).to_have_text(value)
    expect(page.get_by_role("rowheader")).to_have_text(["tortoise", "hare"])
    assert_accessible(page)


@pytest.mark.full
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 768, 360])
def test_a_comparison_is_fit_to_be_seen(
    browser: Browser, stage: LiveServer, pair: tuple[LiveJob, LiveJob], scheme: Any, width: int
) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    context = signed_in(browser, stage.url, stage.token, viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    for name, more in (("lines", "&smooth=0.6"), ("difference", "&difference=1")):
        page.goto(address(pair, more))
        expect(page.get_by_role("figure", name=re.compile("^train.loss")).locator("canvas")).to_be_visible()
        page.screenshot(path=SHOTS / f"compare-{name}-{scheme}-{width}.png", full_page=True, animations="disabled")
        assert_accessible(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
    context.close()
