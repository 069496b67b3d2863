"""The editor of a spec in a real browser, without a cluster: by keyboard alone, in any look, and without its scripts.

The screenshots lie in `build/screenshots/`, to be looked at.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from harness.live_server import LiveServer
from harness.page import SHOTS, assert_accessible, opened, signed_in, write_spec
from playwright.sync_api import Browser, Locator, Page, Route, expect

from shardyard import Client

WRONG = "name: wrong\ntrain:\n  # a comment\n  layout: { data: 2, tensor: 3 }\n  steps: 10\n  global_batch: 8\n"
#: Chromium reports each answer that is a refusal.
REFUSALS = ["status of 422", "status of 400"]


@pytest.fixture
def page(browser: Browser, stage: LiveServer) -> Iterator[Page]:
    """A fresh page; what else it complains of on its console fails the test, so no style and no picture was refused."""
    with opened(browser, stage.url, stage.token, refusals=REFUSALS) as page:
        yield page


def suggested(page: Page) -> Locator:
    return page.get_by_role("listbox", name="Completions").get_by_role("option")


def test_a_spec_is_written_by_keyboard_alone(page: Page) -> None:
    """Keys and values are suggested from the schema, findings are marked, and the editor is left again."""
    page.goto("/new")
    write_spec(page, WRONG)
    text = page.get_by_role("textbox", name="Job spec, YAML")
    expect(text).to_have_accessible_description(re.compile("Esc, then Tab leaves the editor"))
    expect(page.locator(".cm-wrong")).to_have_text("4")
    expect(text).to_have_attribute("aria-invalid", "true")
    page.keyboard.press("F8")
    expect(page.locator(".cm-diagnostic")).to_contain_text("Tensor degrees that divide this model")
    page.keyboard.press("Control+End")
    page.keyboard.type("  prec")
    expect(suggested(page)).to_have_text(["precision"])
    assert_accessible(page)
    page.keyboard.press("Enter")
    expect(suggested(page)).to_have_text(["autodefault", "fp64", "fp32", "bf16", "fp16", "fp8"])
    page.keyboard.type("bf")
    expect(suggested(page)).to_have_text(["bf16"])
    page.keyboard.press("Enter")
    expect(text).to_contain_text("precision: bf16")
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    expect(text).not_to_be_focused()
    expect(text).to_contain_text("precision: bf16")


@pytest.mark.full
def test_keys_of_programs_are_suggested_and_described(page: Page) -> None:
    page.goto("/new")
    write_spec(page, "name: a\ncommand: [python, train.py]\n")
    page.keyboard.type("ran")
    expect(suggested(page).first).to_have_text("ranks")
    page.keyboard.press("Escape")
    page.locator(".cm-content").get_by_text("command", exact=True).hover()
    expect(page.locator(".cm-about")).to_be_visible()
    write_spec(page, "name: a\n")
    page.keyboard.press("Control+Space")
    expect(suggested(page).filter(has_text="train")).to_be_visible()


@pytest.mark.full
def test_without_its_scripts_the_text_area_stays(browser: Browser, stage: LiveServer) -> None:
    with opened(browser, stage.url, stage.token, refusals=[*REFUSALS, "ERR_FAILED"]) as page:
        page.route("**/code-editor-*.js", lambda route: route.abort())
        page.goto("/new")
        text = page.locator("textarea")
        text.fill(WRONG)
        expect(page.locator("[data-wrong]")).to_have_text("4")
        page.get_by_role("button", name="Line 4").click()
        expect(text).to_be_focused()
        assert_accessible(page)


@pytest.mark.full
def test_what_was_typed_before_the_scripts_came_stays(page: Page) -> None:

    def types_first(route: Route) -> None:
        page.locator("textarea").fill("name: early")
        route.continue_()

    with page.expect_request("**/code-editor-*.js"):
        page.route("**/code-editor-*.js", types_first)
        page.goto("/new")
    text = page.locator(".cm-content")
    expect(text).to_have_text("name: early")
    expect(text).to_be_focused()
    page.keyboard.type("-bird")
    expect(text).to_have_text("name: early-bird")


@pytest.mark.full
def test_a_fork_is_the_parents_spec_without_defaults(page: Page, stage: LiveServer) -> None:
    layout = {"data": {"min": 1, "max": 2}, "schedule": "gpipe"}
    wanted = {
        "name": "parent",
        "labels": {"team": "a"},
        "train": {"steps": 20, "global_batch": 8, "layout": layout, "optimizer": {"lr": 0.5}, "recompute": "full"},
        "policy": {"spares": 1, "straggler": None},
    }
    with Client(stage.url, token=stage.token) as client:
        parent = client.submit(wanted)
        page.goto(f"/new?from={parent.id}")
        text = page.locator(".cm-content")
        expect(text).to_contain_text("lr: 0.5")
        assert not re.search("weight_decay|apiVersion|rope_theta|max_restarts", text.inner_text())
        page.get_by_role("button", name="Submit").click()
        expect(page).to_have_url(re.compile(f"/jobs/(?!{parent.id})job-"))
        child = client.job(page.url.rpartition("/")[2])
        differing = {"name": "parent-fork", "labels": {"team": "a", "parent": parent.id}}
        assert child.spec == {**parent.spec, **differing}


@pytest.mark.full
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_the_editor_is_fit_to_be_seen(browser: Browser, stage: LiveServer, scheme: Any, width: int) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    context = signed_in(browser, stage.url, stage.token, viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    page.goto("/new")
    write_spec(page, WRONG)
    expect(page.locator(".cm-wrong")).to_be_visible()
    page.keyboard.type("  sche")
    expect(page.locator(".cm-completionInfo")).to_be_visible()
    page.screenshot(path=SHOTS / f"editor-{scheme}-{width}.png", animations="disabled")
    assert_accessible(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    context.close()
