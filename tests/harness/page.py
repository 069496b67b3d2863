"""A page of the dashboard in a real browser: what it complains of on its console fails the test, and so does what axe finds."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page

from .patience import PATIENCE_MS

ROOT = Path(__file__).parents[2]
#: Where screenshots lie, to be looked at.
SHOTS = ROOT / "build" / "screenshots"
_AXE = ROOT / "api" / "dashboard" / "node_modules" / "axe-core" / "axe.min.js"
_FOUND = """
async () => {
  const { violations } = await axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"] });
  return violations.map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map((node) => node.html + " " + node.failureSummary).join(" | ")}`);
}
"""

#: Keeps in the page the last step of the curves, as `window.reported`, and the number of each step of its stream, as `window.steps`.
RECORDER = """
window.reported = null;
window.steps = [];
const ask = window.fetch;
window.fetch = async (...call) => {
  const answer = await ask(...call);
  const path = String(call[0]);
  if (path.includes("/curves") && answer.ok) window.reported = (await answer.clone().json()).last_step;
  if (!path.split("?")[0].endsWith("/events") || !answer.ok) return answer;
  const [kept, read] = answer.body.tee();
  const record = async () => {
    let text = "";
    for await (const chunk of read.pipeThrough(new TextDecoderStream())) {
      const frames = (text + chunk.replaceAll("\\r", "")).split("\\n\\n");
      text = frames.pop();
      for (const frame of frames) {
        if (frame.includes("event: step")) window.steps.push(JSON.parse(frame.match(/^data: (.*)$/m)[1]).step);
      }
    }
  };
  record().catch(() => undefined);
  return new Response(kept, { status: answer.status, headers: answer.headers });
};
"""


def window(browser: Browser, **options: Any) -> BrowserContext:
    """A fresh window. What is done in it waits as long as the tests do: Playwright alone ends a click after 30 s."""
    context = browser.new_context(**options)
    context.set_default_timeout(PATIENCE_MS)
    return context


def signed_in(browser: Browser, url: str, token: str, **options: Any) -> BrowserContext:
    """A window of a browser that the control plane at `url` knows."""
    context = window(browser, base_url=url, **options)
    answer = context.request.post(f"{url}/v1/session", data={"token": token})
    assert answer.ok, answer.text()
    return context


@contextlib.contextmanager
def opened(browser: Browser, url: str, token: str, height: int = 1000, refusals: Sequence[str] = ()) -> Iterator[Page]:
    """A fresh page, 1280 wide. `refusals`: what it may complain of; Chromium reports each answer that is one."""
    complaints: list[str] = []
    context = signed_in(browser, url, token, viewport={"width": 1280, "height": height})
    page = context.new_page()
    page.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(f"uncaught: {error}"))
    try:
        yield page
    finally:
        context.close()
    left = [each for each in complaints if not any(known in each for known in refusals)]
    assert left == [], left


def open_tab(page: Page, name: str) -> None:
    """Another tab of a job's page, by its link."""
    page.get_by_role("navigation", name="Tabs of the job").get_by_role("link", name=name, exact=True).click()


def write_spec(page: Page, text: str) -> None:
    """Put another text into the code editor, as a paste over all of it does."""
    editor = page.locator(".cm-content")
    editor.click()
    page.keyboard.press("Control+a")
    page.keyboard.press("Delete")
    page.keyboard.insert_text(text)


def assert_accessible(page: Page) -> None:
    """By axe, as it looks now: WCAG 2.2 A and AA."""
    page.evaluate(_AXE.read_text())
    found = page.evaluate(_FOUND)
    assert found == [], found
