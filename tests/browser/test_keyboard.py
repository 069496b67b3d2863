"""Commands, keys and the theme in a real browser, without a cluster.

The screenshots lie in `build/screenshots/`, to be looked at.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from harness.live_server import LiveJob, LiveServer
from harness.page import SHOTS, assert_accessible, opened, signed_in, write_spec
from playwright.sync_api import Browser, Page, expect

TRAIN = {"steps": 600, "global_batch": 16, "layout": {"data": 2}}


@pytest.fixture(scope="module")
def jobs(stage: LiveServer) -> list[LiveJob]:
    """Three that run, the newest last."""
    made = [stage.placed({"name": name, "train": TRAIN}) for name in ("ant", "bee", "cat")]
    for job in made:
        job.state("starting")
        job.state("running")
        job.emit(("step", {"step": 1, "loss": 2.0, "tokens": 1, "lr": 1e-3, "tokens_per_s": 1.0, "step_s": 1.0}))
    return made


@pytest.fixture
def page(browser: Browser, stage: LiveServer) -> Iterator[Page]:
    """A fresh page; what it complains of on its console fails the test."""
    with opened(browser, stage.url, stage.token) as page:
        yield page


def test_a_job_is_found_and_acted_on_by_keyboard_alone(page: Page, jobs: list[LiveJob]) -> None:
    page.goto("/cluster")
    expect(page.get_by_role("heading", name="Cluster")).to_be_visible()
    page.keyboard.press("Control+k")
    box = page.get_by_role("combobox", name="Find a page")
    expect(box).to_be_focused()
    page.keyboard.type("ant")
    expect(page.get_by_role("option", name="ant Job, running")).to_be_visible()
    assert_accessible(page)
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"/jobs/{jobs[0].id}$"))
    expect(page.get_by_role("button", name="Cancel job")).to_be_visible()
    page.keyboard.press("Control+k")
    page.keyboard.type("cancel")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name=re.compile("Cancel ant"))).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Cancel job")).to_be_focused()
    page.keyboard.type("gj")
    expect(page.get_by_role("heading", name="Jobs", exact=True)).to_be_visible()
    expect(page.get_by_role("link", name="cat")).to_be_visible()
    for key, name in (("j", "cat"), ("j", "bee"), ("j", "ant"), ("j", "ant"), ("k", "bee")):
        page.keyboard.press(key)
        expect(page.get_by_role("link", name=name)).to_be_focused()
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("?gc")
    expect(page).to_have_url(re.compile(r"/\?text=%3Fgc$"))
    expect(page.get_by_role("dialog")).to_have_count(0)


@pytest.mark.full
def test_no_key_fires_in_the_editor(page: Page) -> None:
    page.goto("/new")
    write_spec(page, "name: a\n")
    page.keyboard.type("?gc/")
    expect(page.locator(".cm-content")).to_contain_text("?gc/")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page).to_have_url(re.compile("/new$"))


@pytest.mark.full
def test_the_theme_is_kept_and_follows_the_system(page: Page, jobs: list[LiveJob]) -> None:
    root = page.locator("html")
    page.emulate_media(color_scheme="dark")
    page.goto(f"/jobs/{jobs[0].id}/metrics")
    expect(root).to_have_attribute("data-theme", "dark")
    page.emulate_media(color_scheme="light")
    expect(root).to_have_attribute("data-theme", "light")
    page.keyboard.press("Control+k")
    page.keyboard.type("dark")
    page.keyboard.press("Enter")
    expect(root).to_have_attribute("data-theme", "dark")
    expect(page.get_by_label("Theme")).to_have_value("dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(16, 20, 26)"
    page.reload()
    expect(root).to_have_attribute("data-theme", "dark")
    assert_accessible(page)


@pytest.mark.full
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_commands_and_keys_are_fit_to_be_seen(
    browser: Browser, stage: LiveServer, jobs: list[LiveJob], scheme: Any, width: int
) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    context = signed_in(browser, stage.url, stage.token, viewport={"width": width, "height": 740}, color_scheme=scheme)
    page = context.new_page()
    page.goto(f"/jobs/{jobs[0].id}")
    expect(page.get_by_role("button", name="Cancel job")).to_be_visible()
    page.keyboard.press("Control+k")
    expect(page.get_by_role("option", name="bee Job, running")).to_be_attached()
    for name, key in (("palette", "Escape"), ("keys", "?")):
        if name == "keys":
            page.keyboard.press(key)
            expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
        page.screenshot(path=SHOTS / f"{name}-{scheme}-{width}.png", animations="disabled")
        assert_accessible(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.keyboard.press("Escape")
    context.close()
