"""A newcomer's path, as README tells it: `make up`, open the page, submit the example, see the first point of its loss."""

import re
import subprocess
import time
from pathlib import Path

import pytest
from harness.plane import Plane, until
from playwright.sync_api import Browser, expect

from shardyard.api import control

ROOT = Path(control.__file__).parents[1]
#: Milliseconds, and seconds, for what the cluster must do first; it may share its cores with other tests.
SLOW = 240_000
SLOW_S = 240


@pytest.mark.slow
def test_from_make_up_to_the_first_loss_in_three_clicks(browser: Browser) -> None:
    """How long it takes is printed (`-s`), not asserted: this machine may do other things too."""
    plane, began = Plane(), time.monotonic()
    context = browser.new_context()
    try:
        make_up(plane)
        found = control.read(plane.data)
        assert found is not None
        page = context.new_page()
        page.goto(found.url)
        steps = [page.get_by_role("link", name="New job").first, page.get_by_role("button", name="Submit")]
        expect(steps[0]).to_be_visible()
        opened = time.monotonic()
        expect(page.get_by_text("No jobs yet")).to_be_visible()
        expect(page.get_by_text("shardyard submit examples/quickstart.yaml")).to_be_visible()
        for step in steps:
            step.click()
        expect(page.locator("[data-fact='Loss']")).to_have_text(re.compile(r"^\d"), timeout=SLOW)
        told = time.monotonic()
    finally:
        context.close()
        plane.end()
    print(
        f"\n`make up` to the page: {opened - began:.1f} s; to the first loss: {told - began:.1f} s, {len(steps)} clicks"
    )
    assert len(steps) <= 3


def make_up(plane: Plane) -> None:
    """`make up` in a data folder of its own; `plane` ends what it started."""
    log = plane.data / "up.log"
    with log.open("wb") as told:
        up = ["make", "--silent", "up"]
        plane.process = subprocess.Popen(up, cwd=ROOT, env=plane.env, stdout=told, stderr=told, start_new_session=True)
    until(lambda: control.read(plane.data) is not None, SLOW_S, f"`make up`; its log: {log}")
