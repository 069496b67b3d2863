"""The pages of sweeps: one is submitted, watched and cancelled there; a large one is brushed, ordered and paged; each page as it looks.

The screenshots lie in `build/screenshots/`, to be looked at.
"""

import asyncio
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from harness.control_plane import ControlPlane
from harness.page import SHOTS, assert_accessible, opened, signed_in, write_spec
from harness.patience import PATIENCE_MS, PATIENCE_S
from harness.sweep_program import document
from playwright.sync_api import Browser, Page, expect

from shardyard.service.ids import new_id
from shardyard.service.settings import Settings
from shardyard.service.store import sweeps
from shardyard.service.store.engine import Store

#: Learning rates, of which 0.3 is the best.
RATES = [0.05 * at for at in range(1, 10)]


@pytest.fixture
def page(browser: Browser, url: str, token: str) -> Iterator[Page]:
    """A fresh page of the dashboard; what it complains of on its console fails the test."""
    with opened(browser, url, token, height=1400) as page:
        yield page


@pytest.mark.full
def test_a_sweep_is_submitted_looked_at_and_cancelled(page: Page, tmp_path: Path) -> None:
    page.goto("/new")
    expect(page.get_by_role("textbox", name="Job spec, YAML")).to_be_visible()
    write_spec(page, yaml.safe_dump(document(tmp_path, RATES, 100_000, 0.1, search="grid", parallel=1)))
    expect(page.get_by_text("This is a sweep.")).to_be_visible()
    page.get_by_role("button", name="Submit").click()
    expect(page).to_have_url(re.compile("/sweeps/sweep-"))
    sweep = page.url.rpartition("/")[2]
    expect(page.get_by_role("heading", name="tune", exact=True)).to_be_visible()
    trials = page.get_by_role("region", name="Table of trials")
    expect(trials.get_by_role("row")).to_have_count(1 + 9)
    trials.get_by_role("link", name="0", exact=True).click()
    page.locator(".facts").get_by_role("link", name=sweep).click()
    expect(page.get_by_role("heading", name="tune", exact=True)).to_be_visible()
    page.get_by_role("button", name="Cancel sweep").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the sweep").click()
    expect(page.locator(".sweep-head .state-badge")).to_have_text("cancelled")
    expect(trials.get_by_text("cancelled")).to_have_count(9)
    assert_accessible(page)
    page.get_by_role("link", name="Sweeps", exact=True).first.click()
    row = page.get_by_role("row").filter(has=page.locator(f"a[href='/sweeps/{sweep}']"))
    expect(row).to_contain_text("9 / 9")
    assert_accessible(page)


@pytest.mark.full
def test_a_sweep_with_early_stopping_is_followed_to_its_end(page: Page, plane: ControlPlane, tmp_path: Path) -> None:
    asha = {"min_steps": 3, "max_steps": 27}
    with plane.client() as client:
        sweep = client.submit_sweep(document(tmp_path, RATES, 27, 0.1, search="grid", parallel=3, asha=asha))
        page.goto(f"/sweeps/{sweep.name}")
        table = page.get_by_role("region", name="Table of trials")
        expect(table.get_by_text("paused").first).to_be_visible(timeout=PATIENCE_MS)
        table.get_by_role("row").nth(2).hover()
        SHOTS.mkdir(parents=True, exist_ok=True)
        page.emulate_media(color_scheme="dark")
        page.screenshot(path=SHOTS / "sweep-live.png", full_page=True, animations="disabled")
        assert_accessible(page)
        page.emulate_media(color_scheme="light")
        expect(page.locator(".sweep-head .state-badge")).to_have_text("succeeded", timeout=4 * PATIENCE_MS)
        ended = client.wait_for_sweep(sweep.id, timeout_s=PATIENCE_S)
        assert ended.best is not None and ended.best.parameters is not None
        trials = client.trials(sweep.id).items
    best = page.get_by_role("region", name="Best trial")
    expect(best).to_contain_text(f"trial {ended.best.number}")
    expect(best).to_contain_text(f'resources.env.LR: "{ended.best.parameters["resources.env.LR"]}"')
    expect(best.get_by_role("link", name="Its job")).to_have_attribute("href", f"/jobs/{ended.best.job}")
    expect(page.get_by_role("figure", name=re.compile("Best loss so far"))).to_be_visible()
    for step, rung in ((3, 1), (9, 2)):
        row = page.get_by_role("region", name="Rungs").get_by_role("row").nth(rung)
        expect(row).to_contain_text(re.compile(f"^{step}{sum(len(one.rungs) >= rung for one in trials)}"))
    assert {one.state for one in trials} == {"succeeded", "stopped"}
    stopped = sum(one.state == "stopped" for one in trials)
    expect(table.get_by_text("stopped")).to_have_count(stopped)
    table.get_by_text("stopped").first.hover()  # what is pointed at has its contrast, too
    page.screenshot(path=SHOTS / "sweep-asha.png", full_page=True, animations="disabled")
    assert_accessible(page)


@pytest.fixture(scope="module")
def large(plane: ControlPlane) -> str:
    """Id of a sweep of 1,000 trials that has ended."""
    sweep_id = new_id("sweep", time.time())
    with ThreadPoolExecutor(1) as thread:  # this one has Playwright's loop
        thread.submit(asyncio.run, _fill(plane, sweep_id)).result()
    return sweep_id


async def _fill(plane: ControlPlane, sweep_id: str) -> None:
    parameters = {
        "train.optimizer.lr": {"min": 1e-5, "max": 1e-1, "scale": "log"},
        "train.optimizer.weight_decay": {"min": 0.0, "max": 0.3},
        "train.global_batch": {"values": [8, 16, 32, 64]},
        "train.model.preset": {"values": ["nano", "micro"]},
    }
    sweep = {"parameters": parameters, "trials": 1000, "asha": {"min_steps": 30}}
    values = {
        "id": sweep_id,
        "name": "large",
        "state": "succeeded",
        "spec": {"name": "large", "train": {"steps": 300}},
        "sweep": sweep,
        "trials": 1000,
        "actor": "tester",
        "created_at": time.time() - 7000,
        "finished_at": time.time() - 60,
    }
    draws = np.random.default_rng(1)
    store = Store(Settings(data_dir=plane.data).database)
    try:
        async with store.write() as tx:
            await sweeps.create(tx, values, [_trial(number, draws) for number in range(1000)])
    finally:
        await store.close()


def _trial(number: int, draws: np.random.Generator) -> dict[str, Any]:
    lr, decay = float(10 ** draws.uniform(-5, -1)), float(draws.uniform(0, 0.3))
    batch, preset = int(draws.choice([8, 16, 32, 64])), str(draws.choice(["nano", "micro"]))
    loss = 2.0 + 0.3 * (np.log10(lr) + 3) ** 2 + decay + float(draws.normal(0, 0.1)) + (preset == "nano") * 0.4
    rungs = [loss + 0.5, loss + 0.2][: 2 if loss < 2.4 else 1]
    whole = loss < 2.2
    given = {
        "train.optimizer.lr": lr,
        "train.optimizer.weight_decay": decay,
        "train.global_batch": batch,
        "train.model.preset": preset,
    }
    row = {"number": number, "parameters": given, "job_id": None, "message": None}
    if number % 100 == 99:
        message = "train.global_batch: 64 sequences do not fit; use fewer."
        return {**row, "standing": "over", "outcome": "refused", "rungs": [], "value": None, "message": message}
    if whole:
        return {**row, "standing": "done", "outcome": "succeeded", "rungs": rungs, "value": loss}
    return {**row, "standing": "over", "outcome": "stopped", "rungs": rungs, "value": rungs[-1]}


@pytest.mark.full
def test_a_thousand_trials_are_brushed_ordered_and_paged(page: Page, large: str) -> None:
    page.goto(f"/sweeps/{large}")
    rows = page.get_by_role("region", name="Table of trials").get_by_role("row")
    expect(rows).to_have_count(1 + 50)
    assert page.locator(".parallel-lines path").count() <= 9, "a path for each colour, not for each trial"
    expect(page.get_by_role("navigation", name="Pages of trials")).to_contain_text("1 of 20")
    page.get_by_role("button", name="Next").click()
    expect(rows.nth(1)).to_contain_text("50")
    page.get_by_role("button", name="loss", exact=True).click()
    expect(rows.nth(1)).to_contain_text("best")
    axis = page.locator(".parallel-drag").first
    box = axis.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 1)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 4, steps=5)
    page.mouse.up()
    passing = page.get_by_text(re.compile(r"^2\d\d of 1,000 pass the brushes$"))
    expect(passing).to_be_visible()  # a fourth of the drawn learning rates, those from 0.01 on
    expect(rows.nth(1)).to_contain_text(re.compile(r"0\.0[1-9]"))
    lowest = page.get_by_role("slider", name="Lowest global_batch")
    lowest.focus()
    page.keyboard.press("End")
    expect(lowest).to_have_attribute("aria-valuetext", "64")
    expect(passing).to_be_hidden()
    page.keyboard.press("Escape")
    expect(passing).to_be_visible()
    page.get_by_role("button", name="Show all trials").click()
    expect(passing).to_be_hidden()
    expect(page.get_by_role("navigation", name="Pages of trials")).to_contain_text("1 of 20")


@pytest.mark.full
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_the_pages_of_sweeps_are_fit_to_be_seen(
    browser: Browser, url: str, token: str, large: str, scheme: Any, width: int
) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    context = signed_in(browser, url, token, viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    for name, address, shown in (
        ("sweeps", "/sweeps", ".sweep-table"),
        ("sweep", f"/sweeps/{large}", ".chart canvas"),
    ):
        page.goto(address)
        expect(page.locator(shown).first).to_be_visible(timeout=PATIENCE_MS)
        page.screenshot(path=SHOTS / f"{name}-{scheme}-{width}.png", full_page=True, animations="disabled")
        assert_accessible(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
    context.close()
