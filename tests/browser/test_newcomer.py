"""A newcomer's path, as README describes it: `make up`, follow its link, submit the example, see the first point of its loss."""

import re
import time
from pathlib import Path

import pytest
from harness.control_plane import ControlPlane
from harness.patience import PATIENCE_MS
from harness.terminal import Terminal
from playwright.sync_api import Browser, expect

from shardyard.api import pidfile

ROOT = Path(pidfile.__file__).parents[1]


@pytest.mark.full
def test_from_make_up_to_the_first_loss_in_three_clicks(browser: Browser) -> None:
    """How long it takes is printed (`-s`), not asserted: this machine may do other things too."""
    plane, began = ControlPlane(), time.monotonic()
    context = browser.new_context()
    try:
        link = make_up(plane)
        page = context.new_page()
        page.goto(link)
        expect(page).not_to_have_url(re.compile("code"))
        steps = [page.get_by_role("link", name="New job").first, page.get_by_role("button", name="Submit")]
        expect(steps[0]).to_be_visible()
        opened = time.monotonic()
        expect(page.get_by_text("No jobs yet")).to_be_visible()
        expect(page.get_by_text("shardyard submit examples/quickstart.yaml")).to_be_visible()
        for step in steps:
            step.click()
        expect(page.locator("[data-fact='Loss']")).to_have_text(re.compile(r"^\d"), timeout=PATIENCE_MS)
        drawn = time.monotonic()
    finally:
        context.close()
        plane.end()
    print(
        f"\n`make up` to the page: {opened - began:.1f} s; to the first loss: {drawn - began:.1f} s, {len(steps)} clicks"
    )
    assert len(steps) <= 3


def make_up(plane: ControlPlane) -> str:
    """`make up` on a terminal, in a data folder of its own; `plane` ends what it started. The link that it shows."""
    terminal = Terminal(["make", "--silent", "--directory", str(ROOT), "up"], plane.env)
    plane.process = terminal.process
    terminal.shows("Open the dashboard: ", "shardyard open")
    link: str = re.findall(r"Open the dashboard: (\S+)", terminal.text)[0]
    return link
