"""A user at the dashboard of a real control plane: a job appears, learns, writes, and is cancelled by its button."""

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.control_plane import ControlPlane, spec
from harness.page import RECORDER, open_tab, signed_in
from harness.patience import PATIENCE_MS, PATIENCE_S
from harness.slow_model import write_slow_model
from playwright.sync_api import Browser, ConsoleMessage, Page, expect

MODEL = '''
import time

import torch
import torch.distributed as dist


class Chatty(torch.nn.Module):
    """Says on every tenth call which rank it is on."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(256, 16)
        self.head = torch.nn.Linear(16, 256)
        self.calls = 0

    def forward(self, tokens):
        time.sleep(0.02)  # the cores are the page's
        self.calls += 1
        if self.calls % 10 == 1:
            print(f"call {self.calls} on rank {dist.get_rank()}", flush=True)
        return self.head(self.embed(tokens))


def build() -> torch.nn.Module:
    return Chatty()
'''


@pytest.fixture
def page(browser: Browser, url: str, token: str) -> Iterator[Page]:
    """A fresh page of the dashboard; what it complains of on its console fails the test."""
    complaints: list[str] = []

    def heard(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            complaints.append(f"{message.type}: {message.text} ({message.location.get('url')})")

    context = signed_in(browser, url, token, viewport={"width": 1280, "height": 1000})
    opened = context.new_page()
    opened.on("console", heard)
    opened.on("pageerror", lambda error: complaints.append(f"uncaught: {error}"))
    opened.on("request", lambda request: complaints.append(request.url) if _foreign(request.url, url) else None)
    yield opened
    context.close()
    assert complaints == []


def _foreign(asked: str, url: str) -> bool:
    return not asked.startswith(f"{url}/")


def submit(url: str, token: str, spec: dict[str, Any]) -> str:
    """Submit by REST; the job's id."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    request = urllib.request.Request(f"{url}/v1/jobs", json.dumps(spec).encode(), headers, method="POST")
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return str(json.load(answer)["id"])


def chatty_job(folder: Path) -> dict[str, Any]:
    """Two ranks, small steps, far more of them than anyone waits for."""
    (folder / "chatty.py").write_text(MODEL)
    text = folder / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog\n" * 2000)
    return {
        "name": "chatty",
        "labels": {"team": "browser"},
        "train": {
            "model": {"import": "chatty:build", "code": str(folder)},
            "data": {"source": "text", "files": [str(text)], "seq_len": 32},
            "layout": {"data": 2},
            "optimizer": {"lr": 0.001},
            "steps": 1_000_000,
            "global_batch": 4,
            "eval": {"every": 20, "batches": 1},
            "checkpoint": {"every": 1000},
        },
    }


def number(text: str) -> float:
    return float(text.replace(",", ""))


def step(page: Page) -> float:
    shown = page.locator(".job-head-progress strong").text_content() or "0"
    return number(shown)


def test_a_job_from_its_first_row_to_its_cancellation(page: Page, url: str, token: str, tmp_path: Path) -> None:
    page.goto("/")
    expect(page.get_by_role("heading", name="Jobs", exact=True)).to_be_visible()
    job = submit(url, token, chatty_job(tmp_path))
    row = page.get_by_role("row").filter(
        has=page.locator(f"a[href='/jobs/{job}']")
    )  # other files' jobs are in the list, too
    expect(row).to_be_visible()
    expect(row).to_contain_text("data 2")
    row.get_by_role("link", name="chatty").click()
    expect(page).to_have_url(f"{url}/jobs/{job}")

    it_learns(page)
    its_ranks_write(page)
    it_shows_what_happened(page)
    it_is_cancelled(page)

    page.get_by_role("link", name="Shardyard").click()
    expect(row).to_contain_text("cancelled")


def it_learns(page: Page) -> None:
    expect(page.locator(".job-head .state-badge")).to_have_text("running", timeout=PATIENCE_MS)
    expect(page.get_by_role("figure", name=re.compile("Loss"))).to_be_visible(timeout=PATIENCE_MS)
    loss = page.locator("[data-fact='Loss']")
    before_loss, before_step = loss.text_content() or "", step(page)
    expect(loss).not_to_have_text(before_loss, timeout=PATIENCE_MS)
    page.wait_for_function(
        "before => Number(document.querySelector('.job-head-progress strong').textContent.replaceAll(',', '')) > before + 20",
        arg=before_step,
        timeout=PATIENCE_MS,
    )
    assert 0 < number(loss.text_content() or "") < 7
    expect(page.locator("[data-fact='Validation loss']")).not_to_have_text("–", timeout=PATIENCE_MS)
    open_tab(page, "Metrics")
    # Loss, tokens/s, gradient norm, learning rate: a CPU has no MFU.
    expect(page.locator(".chart canvas")).to_have_count(4)


def its_ranks_write(page: Page) -> None:
    open_tab(page, "Logs")
    log = page.get_by_role("log")
    expect(log.locator(".log-line").first).to_be_visible(timeout=PATIENCE_MS)
    expect(log).to_contain_text("on rank 0", timeout=PATIENCE_MS)
    expect(log).to_contain_text("on rank 1", timeout=PATIENCE_MS)
    page.get_by_role("combobox", name="Rank", exact=True).select_option("1")
    expect(log).not_to_contain_text("on rank 0")
    expect(log).to_contain_text("on rank 1")
    lines = log.locator(".log-line").all_text_contents()
    assert len(lines) == len(set(lines)), "a line is shown twice"


def it_shows_what_happened(page: Page) -> None:
    open_tab(page, "Overview")
    history = page.get_by_role("region", name="History")
    for state in ("queued", "starting", "running"):
        expect(history.get_by_text(state, exact=True)).to_be_visible()
    open_tab(page, "Spec")
    spec = page.get_by_role("region", name="Spec")
    expect(spec.get_by_role("tabpanel")).to_contain_text('"import": "chatty:build"')  # as it was submitted
    spec.get_by_role("tab", name="YAML").click()
    expect(spec.get_by_role("tabpanel")).to_contain_text("import: chatty:build")
    spec.get_by_role("tab", name="JSON").click()
    shown = json.loads(spec.get_by_role("tabpanel").text_content() or "")
    assert shown["name"] == "chatty"


def it_is_cancelled(page: Page) -> None:
    page.get_by_role("button", name="Cancel job").click()
    dialog = page.get_by_role("dialog", name="Cancel chatty?")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(page.locator(".job-head .state-badge")).to_have_text("running")
    page.get_by_role("button", name="Cancel job").click()
    dialog.get_by_role("button", name="Cancel the job").click()
    expect(page.locator(".job-head .state-badge")).to_have_text("cancelled")
    expect(page.get_by_role("button", name="Cancel job")).to_have_count(0)
    stopped = step(page)
    page.wait_for_timeout(1000)
    assert step(page) == stopped


@pytest.mark.full
def test_a_page_outlives_its_control_plane(
    browser: Browser, plane: ControlPlane, url: str, token: str, tmp_path: Path
) -> None:
    """`kill -9` and a new start: the open page goes on by itself, and no step is missing or there twice."""
    page = signed_in(browser, url, token).new_page()
    page.add_init_script(RECORDER)
    outlives = spec("outlives", steps=1_000_000, model=write_slow_model(tmp_path), layout={"data": 2, "micro_batch": 4})
    page.goto(f"{url}/jobs/{submit(url, token, outlives)}")
    page.wait_for_function("() => window.steps.length > 20", timeout=PATIENCE_MS)
    plane.kill()
    expect(page.get_by_text("connection lost")).to_be_visible()
    plane.up()
    before = page.evaluate("window.steps.length")
    page.wait_for_function("before => window.steps.length > before + 20", arg=before, timeout=PATIENCE_MS)
    expect(page.get_by_text("connection lost")).to_be_hidden()
    steps = page.evaluate("window.steps")
    assert steps == list(range(steps[0], steps[0] + len(steps)))
    page.get_by_role("button", name="Cancel job").click()
    page.get_by_role("button", name="Cancel the job").click()
    expect(page.locator(".job-head .state-badge")).to_have_text("cancelled")
    page.context.close()


@pytest.mark.parametrize("scheme", [pytest.param("light", marks=pytest.mark.full), "dark"])
def test_it_fits_a_narrow_screen(browser: Browser, url: str, token: str, scheme: Any) -> None:
    context = signed_in(browser, url, token, viewport={"width": 360, "height": 740}, color_scheme=scheme)
    page = context.new_page()
    page.goto("/")
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).every(part => part < 60)")
    assert dark == (scheme == "dark")
    context.close()


@pytest.mark.full
def test_a_job_that_is_not_there_is_said(browser: Browser, url: str, token: str) -> None:
    context = signed_in(browser, url, token)
    page = context.new_page()
    page.goto("/jobs/absent")
    expect(page.get_by_role("alert")).to_contain_text("absent")
    page.get_by_role("link", name="All jobs").click()
    expect(page).to_have_url(f"{url}/")
    context.close()
