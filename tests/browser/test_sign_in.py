"""A browser that the control plane does not know: it says how to sign in, a link does it in one click, and so does the token.

The screenshots lie in `build/screenshots/`, to be looked at.
"""

from typing import Any

import pytest
from harness.live_server import LiveServer
from harness.page import SHOTS, assert_accessible, opened, window
from playwright.sync_api import Browser, expect

from shardyard import Client
from shardyard.api.access_token import sign_in_link


@pytest.mark.parametrize("scheme", [pytest.param("light", marks=pytest.mark.full), "dark"])
def test_with_the_token_in_and_out_again(browser: Browser, stage: LiveServer, scheme: Any) -> None:
    size = {"width": 900 if scheme == "light" else 360, "height": 700}
    context = window(browser, base_url=stage.url, viewport=size, color_scheme=scheme)
    page = context.new_page()
    page.goto("/docs")  # the API's description needs a session, too
    expect(page.get_by_text("shardyard open")).to_be_visible()
    page.goto("/?sort=name")
    expect(page.get_by_text("shardyard open")).to_be_visible()
    assert_accessible(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= (page.viewport_size or {"width": 0})["width"]
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"sign-in-{scheme}.png")
    page.get_by_label("access token").fill("wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("not the control plane's access token")
    page.get_by_label("access token").fill(stage.token)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Jobs", exact=True)).to_be_visible()
    expect(page).to_have_url(f"{stage.url}/?sort=name")
    assert page.evaluate("document.cookie") == ""  # out of scripts' reach
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_text("shardyard open")).to_be_visible()
    page.reload()
    expect(page.get_by_text("shardyard open")).to_be_visible()
    context.close()


def test_a_link_signs_in_and_leaves_no_trace(browser: Browser, stage: LiveServer) -> None:
    with Client(stage.url, token=stage.token) as client:
        link = sign_in_link(stage.url, client.sign_in_code().code, "/new")
    asked: list[str] = []
    context = window(browser)
    page = context.new_page()
    page.on("request", lambda request: asked.append(request.url))
    page.goto(link)
    expect(page.get_by_role("heading", name="New job")).to_be_visible()
    expect(page).to_have_url(f"{stage.url}/new")
    assert not any("code=" in url.partition("#")[0] for url in asked)
    other = window(browser).new_page()
    other.goto(link)
    expect(other.get_by_role("alert")).to_contain_text("used or has expired")
    other.context.close()
    context.close()


@pytest.mark.full
def test_the_apis_description_asks_no_other_host(browser: Browser, stage: LiveServer) -> None:
    with opened(browser, stage.url, stage.token) as page:
        foreign: list[str] = []
        page.on("request", lambda request: foreign.append(request.url) if _foreign(request.url, stage) else None)
        page.goto("/docs")
        expect(page.get_by_text("Submit a job", exact=True)).to_be_visible()
        page.get_by_text("List jobs", exact=True).click()
        page.get_by_role("button", name="Try it out").click()
        page.get_by_role("button", name="Execute").click()
        expect(page.get_by_text('"items"').first).to_be_visible()
        page.screenshot(path=SHOTS / "docs.png")
        assert foreign == []


def _foreign(url: str, stage: LiveServer) -> bool:
    return not url.startswith((f"{stage.url}/", "data:", "blob:"))
