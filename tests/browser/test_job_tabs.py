"""The tabs of a job's page, without a cluster: each by its address, what they keep and what they leave alone; and charts by name.

The screenshots lie in `build/screenshots/`, to be looked at.
"""

import csv
import math
import re
import struct
from array import array
from collections.abc import Iterator
from typing import Any

import pytest
from harness.live_server import LiveJob, LiveServer
from harness.page import SHOTS, assert_accessible, open_tab, opened, signed_in
from playwright.sync_api import Browser, Page, expect

from shardyard.workers.messages.event import MetricsEvent, to_json
from shardyard.workers.messages.metric_block import MetricBlock, packed

#: What each tab shows once it is whole, by its name in the address.
TABS = {
    "": ".timeline svg",
    "/metrics": ".chart canvas",
    "/system": ".chart canvas",
    "/ranks": ".rank-cell",
    "/traces": ".job-traces button",
    "/logs": ".log-line",
    "/checkpoints": ".checkpoint-ways",
    "/spec": ".spec-view pre",
}
STEPS = 60


@pytest.fixture
def page(browser: Browser, stage: LiveServer) -> Iterator[Page]:
    """A fresh page; what it complains of on its console fails the test."""
    with opened(browser, stage.url, stage.token) as page:
        yield page


@pytest.fixture(scope="module")
def training(stage: LiveServer) -> LiveJob:
    """Four ranks in the middle of a training, with something on every tab."""
    layout = {"data": 2, "tensor": 2}
    placed = stage.placed({"name": "llama-tabs", "train": {"steps": 600, "global_batch": 16, "layout": layout}})
    placed.state("starting")
    placed.state("running")
    numbers = {"lr": 1e-3, "tokens_per_s": 10_000.0, "step_s": 0.2}
    learned = [{"step": n, "loss": 2 + 3 / n, "grad_norm": 1 / n, "tokens": 2048 * n, **numbers} for n in range(1, 201)]
    placed.emit(*(("step", step) for step in learned))
    placed.emit(*(("eval", {"step": n, "loss": 2.2 + 3 / n}) for n in range(20, 201, 20)))
    lists = {"step_s": [0.2] * 4, "busy_s": [0.1, 0.11, 0.1, 0.12], "wait_s": [0.1, 0.09, 0.1, 0.08]}
    placed.emit(("rank_metrics", {"step": 200, "steps": 25, "memory": [1 << 30] * 4, "memory_of": "resident", **lists}))
    saved = {"bytes": 14_600_000, "seconds": 0.21, "held_s": 0.01}
    placed.emit(*(("checkpoint", {"step": n, "path": f"/checkpoints/step-{n:08d}", **saved}) for n in (100, 200)))
    said = [*(f"step {n} of a rank" for n in range(198)), "UserWarning: slow", "RuntimeError: no such file"]
    placed.emit(("log", {"rank": 1, "stream": "stdout", "first": 1, "lines": said}))
    uses = ({"nodes": {"n1": {"cpu": 40.0 + n}}, "ranks": {"cpu": [90.0, 95.0 + n, 80.0, 70.0]}} for n in range(20))
    placed.emit(*(("system", use) for use in uses), since=1_000_000.0)
    placed.emit(("incident", {"cause": "rank_lost", "rank": 1, "generation": 1, "step": 120, "message": "SIGKILL"}))
    return placed


@pytest.fixture(scope="module")
def program(stage: LiveServer) -> LiveJob:
    """A program of two ranks that logs a thousand metrics, in ten groups of a hundred."""
    placed = stage.placed({"name": "thousand", "command": ["python", "-c", "pass"], "ranks": 2})
    placed.state("starting")
    placed.state("running")
    names = tuple(f"layer{group}/norm{n:02d}" for group in range(10) for n in range(100))
    for rank in range(2):
        values = array("d", (math.sin(step / 9) + rank + at % 7 for step in range(STEPS) for at in range(len(names))))
        block = MetricBlock(names, tuple(range(STEPS)), packed(values))
        placed.emit(("metrics", to_json(MetricsEvent(rank=rank, generation=1, blocks=(block,)))))
    return placed


def width_of(page: Page) -> int:
    return int(page.evaluate("document.documentElement.scrollWidth"))


def test_every_tab_has_its_address_and_title(page: Page, stage: LiveServer, training: LiveJob) -> None:
    page.goto(f"/jobs/{training.id}")
    for path, whole in TABS.items():
        name = (path.removeprefix("/") or "overview").capitalize()
        open_tab(page, name)
        expect(page).to_have_url(f"{stage.url}/jobs/{training.id}{path}")
        expect(page).to_have_title(f"llama-tabs · {name} · running · Shardyard")
        expect(page.locator(whole).first).to_be_visible()
        expect(page.locator(".tab-links [aria-current=page]")).to_have_text(name)
    page.go_back()  # from the spec
    expect(page.locator(TABS["/checkpoints"]).first).to_be_visible()
    assert_accessible(page)


@pytest.mark.full
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 768, 360])
def test_every_tab_is_fit_to_be_seen(
    browser: Browser, stage: LiveServer, training: LiveJob, scheme: Any, width: int
) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    context = signed_in(browser, stage.url, stage.token, viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    page.goto(f"/jobs/{training.id}")
    for path, whole in TABS.items():
        name = (path.removeprefix("/") or "overview").capitalize()
        open_tab(page, name)
        expect(page.locator(whole).first).to_be_visible()
        page.screenshot(path=SHOTS / f"tab-{name.lower()}-{scheme}-{width}.png", full_page=True, animations="disabled")
        assert_accessible(page)
        assert width_of(page) <= width, name
    context.close()


def test_tabs_are_walked_by_keyboard_and_history(page: Page, training: LiveJob) -> None:
    """The head stays in view; a tab is again what it was left as."""
    page.set_viewport_size({"width": 1280, "height": 600})
    page.goto(f"/jobs/{training.id}/metrics?smooth=0.5")
    head = page.locator(".job-head")
    charts = page.locator(".chart canvas")
    expect(charts).to_have_count(4)
    page.mouse.wheel(0, 250)
    page.wait_for_function("() => scrollY === 250")
    box = head.bounding_box()
    assert box is not None and box["y"] == 0
    expect(head.get_by_role("button", name="Cancel job")).to_be_in_viewport()
    with page.expect_event("requestfailed", lambda request: "/events" in request.url):  # nothing there needs the stream
        head.get_by_role("link", name="Spec").focus()
        page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="Spec")).to_be_visible()
    expect(head.get_by_role("link", name="Spec")).to_be_focused()
    page.go_back()
    expect(page).to_have_url(re.compile(r"/metrics\?smooth=0.5$"))
    expect(charts).to_have_count(4)
    page.go_forward()
    head.get_by_role("link", name="Metrics").click()
    expect(page.get_by_role("slider", name="Smoothing")).to_have_value("0.5")
    page.wait_for_function("() => scrollY === 250")


@pytest.mark.full
def test_of_a_thousand_metrics_those_in_view_are_drawn(page: Page, program: LiveJob) -> None:
    asked: list[int] = []
    page.on("request", lambda one: asked.append(one.url.count("name=")) if "/logged-curves" in one.url else None)
    page.goto(f"/jobs/{program.id}/metrics")
    charts = page.locator(".chart canvas")
    expect(page.get_by_role("status").filter(has_text="metrics")).to_have_text("1,000 metrics")
    expect(page.get_by_role("figure", name="layer0/norm00")).to_be_visible()
    assert charts.count() <= 24 and page.locator(".metric-panel").count() == 1000
    page.get_by_text("layer9/norm99").scroll_into_view_if_needed()
    expect(page.get_by_role("figure", name="layer9/norm99")).to_be_visible()
    expect(page.get_by_role("figure", name="layer0/norm00")).to_have_count(0)
    assert charts.count() <= 24 and max(asked) <= 24
    page.get_by_role("searchbox", name="Find metrics").fill("NORM42")
    expect(page.get_by_role("status").filter(has_text="metrics")).to_have_text("10 metrics")
    closed = page.locator("details").filter(has=page.get_by_role("heading", name="layer3"))
    panels = page.locator(".metric-panel")
    expect(panels).to_have_count(10)
    closed.locator("summary").click()
    expect(panels).to_have_count(9)
    expect(page.get_by_role("figure", name="layer1/norm42")).to_be_visible()
    expect(page).to_have_url(re.compile(r"\?find=NORM42$"))
    page.reload()
    expect(panels).to_have_count(9)
    expect(closed).not_to_have_attribute("open", "")


@pytest.mark.full
def test_what_thirty_ranks_use_is_drawn_over_time(page: Page, stage: LiveServer) -> None:
    placed = stage.placed({"name": "thirty", "command": ["true"], "ranks": 30})
    placed.state("starting")
    placed.state("running")
    use = {"cpu": [float(rank) for rank in range(30)], "gpu_power": [700.0] * 30}
    sample = {"nodes": {"0123456789abcdef": {"cpu": 40.0, "network_send": 2048.0}}, "ranks": use}
    placed.emit(*(("system", sample) for _ in range(30)), since=1_000_000.0)
    page.goto(f"/jobs/{placed.id}")
    open_tab(page, "System")
    expect(page.get_by_role("figure", name="Sent to the network")).to_have_attribute(
        "aria-label", re.compile("2.0 KiB/s")
    )
    power = page.get_by_role("figure", name="GPU power (W)")
    power.scroll_into_view_if_needed()
    expect(power).to_have_attribute("aria-label", re.compile("rank 23 ends at 700.$"))
    power.get_by_role("button", name="Next").click()
    expect(power).to_have_attribute("aria-label", re.compile("rank 24 .* rank 29 ends at 700.$"))
    expect(power.locator(".u-legend")).to_contain_text("rank 24")
    power.get_by_role("button", name="First").click()
    expect(power).to_have_attribute("aria-label", re.compile("rank 0 ends"))
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / "system.png", full_page=True, animations="disabled")
    assert_accessible(page)


def test_a_metric_with_bars_in_its_name_is_drawn(page: Page, stage: LiveServer) -> None:
    """Bars stood between the parts of a line's style."""
    placed = stage.placed({"name": "bars", "command": ["true"]})
    placed.state("starting")
    placed.state("running")
    block = MetricBlock(("lighteval|gsm8k|acc",), tuple(range(STEPS)), packed(array("d", map(float, range(STEPS)))))
    placed.emit(("metrics", to_json(MetricsEvent(rank=0, generation=1, blocks=(block,)))))
    page.goto(f"/jobs/{placed.id}/metrics")
    chart = page.get_by_role("figure", name="lighteval|gsm8k|acc")
    expect(chart.locator(".u-legend")).to_contain_text("lighteval|gsm8k|acc")
    marker = chart.locator(".u-legend .u-marker").last
    assert "rgba(0, 0, 0, 0)" not in marker.evaluate("(it) => getComputedStyle(it).borderTopColor")


@pytest.mark.full
def test_a_chart_fills_the_screen_and_is_downloaded(page: Page, program: LiveJob) -> None:
    page.goto(f"/jobs/{program.id}/metrics?find=layer0/norm01&smooth=0.9")
    full = page.get_by_role("button", name="Full screen of layer0/norm01")
    full.click()
    dialog = page.get_by_role("dialog", name="layer0/norm01")
    canvas = dialog.locator("canvas")
    expect(canvas).to_be_visible()
    # It is drawn before the dialog is shown, and takes its size with a frame after that.
    page.wait_for_function("() => document.querySelector('dialog canvas').clientHeight > 700")
    box = canvas.bounding_box()
    assert box is not None and box["width"] > 1100 and box["height"] > 700
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / "chart-full.png", animations="disabled")
    assert_accessible(page)
    with page.expect_download() as picture:
        dialog.get_by_role("button", name="PNG of layer0/norm01").click()
    assert picture.value.suggested_filename == "thousand-layer0-norm01.png"
    data = picture.value.path().read_bytes()
    (SHOTS / "chart-download.png").write_bytes(data)
    assert data.startswith(b"\x89PNG\r\n")
    width, height = struct.unpack(">II", data[16:24])
    assert width > box["width"] and height > box["height"]
    with page.expect_download() as numbers:
        dialog.get_by_role("button", name="CSV of layer0/norm01").click()
    with numbers.value.path().open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["first_step"]) for row in rows] == list(range(STEPS))
    for step, row in enumerate(rows):  # of two ranks
        low = math.sin(step / 9) + 1
        wanted = {"mean": low + 0.5, "min": low, "max": low + 1}
        assert {name: float(row[name]) for name in wanted} == pytest.approx(wanted, abs=1e-5)
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(full).to_be_focused()


@pytest.mark.full
def test_a_job_is_renamed_and_gets_notes_in_a_dialog(page: Page, stage: LiveServer) -> None:
    job = stage.placed({"name": "nameless", "command": ["python", "-c", "pass"], "labels": {"team": "search"}}).id
    page.goto(f"/jobs/{job}")
    notes = page.get_by_role("region", name="Notes")
    notes.get_by_role("button", name="Edit…").click()
    dialog = page.get_by_role("dialog", name="Edit nameless")
    dialog.get_by_label("Name").fill("with-notes")
    dialog.get_by_label("Labels").fill("team=search\nrun=3")
    dialog.get_by_label("Notes").fill("Too fast.\n\nNext: <b>3e-4</b>.")
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / "edit-job.png", animations="disabled")
    assert_accessible(page)
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("heading", level=1)).to_have_text("with-notes")
    expect(page.get_by_text("run=3", exact=True)).to_be_visible()
    expect(notes.locator("p")).to_have_text("Too fast.\n\nNext: <b>3e-4</b>.", use_inner_text=True)
    page.screenshot(path=SHOTS / "job-notes.png", animations="disabled")
    assert_accessible(page)


def test_a_log_is_filtered_downloaded_and_shown_on_the_full_screen(page: Page, training: LiveJob) -> None:
    training.emit(("log", {"rank": 2, "stream": "stderr", "first": 1, "lines": ["a line on stderr " + "x" * 400]}))
    page.goto(f"/jobs/{training.id}/logs?wrap=0")
    lines = page.locator(".log-line")
    expect(page.locator("[data-level=error]")).to_have_text(re.compile("RuntimeError"))
    expect(page.get_by_label("Wrap")).not_to_be_checked()
    assert page.evaluate("(box => box.scrollWidth > box.clientWidth)(document.querySelector('.log-tail-lines'))")
    page.get_by_label("Wrap").check()
    expect(page).to_have_url(re.compile("/logs$"))
    assert page.evaluate("(box => box.scrollWidth <= box.clientWidth)(document.querySelector('.log-tail-lines'))")
    page.get_by_label("Stream").select_option("stderr")
    expect(lines).to_have_count(1)
    expect(page).to_have_url(re.compile(r"/logs\?stream=stderr$"))
    with page.expect_download() as begun:
        page.get_by_role("button", name="Download").click()
    assert begun.value.suggested_filename == "llama-tabs-log.txt"
    assert re.fullmatch(r"\S+Z rank 2 stderr a line on stderr x{400}\n", begun.value.path().read_text())
    page.get_by_role("button", name="Follow the newest lines").click()
    with page.expect_download() as begun:
        page.get_by_role("button", name="Download").click()
    assert begun.value.path().read_text().count("\n") == 201
    page.get_by_role("button", name="Full screen").click()
    page.wait_for_function("() => document.fullscreenElement !== null")
    assert_accessible(page)
    page.get_by_role("button", name="Leave full screen").click()
    page.wait_for_function("() => document.fullscreenElement === null")


@pytest.mark.full
def test_a_trainings_curves_run_along_tokens_and_time(page: Page, training: LiveJob) -> None:
    """Also a range: it stays the same steps. What a program logs has steps alone."""
    page.goto(f"/jobs/{training.id}/metrics")
    legend = page.locator(".chart .u-legend").first
    expect(legend).to_contain_text("Step")
    page.get_by_label("Along").select_option("tokens")
    expect(page).to_have_url(re.compile(r"/metrics\?by=tokens$"))
    expect(legend).to_contain_text("Tokens")
    expect(legend).to_contain_text("409,600")  # 200 steps of 2048
    page.get_by_label("Along").select_option("time")
    expect(legend).to_contain_text("Time")
    page.goto(f"/jobs/{training.id}/metrics?by=tokens&from=50&to=100")
    expect(legend).to_contain_text("Tokens")
    expect(page.get_by_label("Steps", exact=True)).to_have_value("50")
    with page.expect_download() as begun:
        page.get_by_role("button", name=re.compile("CSV of Loss")).click()
    rows = begun.value.path().read_text().splitlines()[1:]
    assert {rows[0].split(",")[1], rows[50].split(",")[1]} == {"50", "100"}
    assert_accessible(page)
    page.get_by_role("button", name="All steps").click()
    expect(page).to_have_url(re.compile(r"/metrics\?by=tokens$"))


@pytest.mark.parametrize(
    "width", [768, pytest.param(1100, marks=pytest.mark.full), pytest.param(360, marks=pytest.mark.full)]
)
def test_no_column_of_the_list_is_cut_off_by_a_long_name(page: Page, stage: LiveServer, width: int) -> None:
    """Grouped, too; a row's last cell is where it can be seen."""
    name = "long-" * 11 + f"of-{width}"
    stage.placed({"name": name, "command": ["true"], "labels": {"team": "t" * 63}})
    page.set_viewport_size({"width": width, "height": 800})
    page.goto("/?group=label.team")
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name=name))
    created = row.locator(".job-table-created")
    expect(created).to_be_visible()
    box = created.bounding_box()
    assert box is not None and box["x"] + box["width"] <= width, box
    expect(page.get_by_role("button", name="t" * 63)).to_have_attribute("aria-expanded", "true")
    page.screenshot(path=SHOTS / f"jobs-grouped-{width}.png", animations="disabled")
    assert_accessible(page)
    assert width_of(page) <= width
