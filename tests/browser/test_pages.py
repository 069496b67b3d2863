"""A newcomer and an operator at the pages around the jobs: submit, look at the cluster, compare, cancel; each page as it looks.

The screenshots lie in `build/screenshots/`, to be looked at.
"""

import contextlib
import re
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from harness.control_plane import ControlPlane, spec, until
from harness.page import SHOTS, assert_accessible, opened, signed_in, write_spec
from harness.patience import PATIENCE_MS, PATIENCE_S
from harness.slow_model import write_slow_model
from playwright.sync_api import Browser, Page, expect

from shardyard import Client
from shardyard.api.client import FINAL, ApiError
from shardyard.service.schemas.job import Job


@pytest.fixture
def refusals() -> list[str]:
    """What a page may complain of on its console: Chromium reports each answer that is a refusal."""
    return []


@pytest.fixture
def page(browser: Browser, url: str, token: str, refusals: list[str]) -> Iterator[Page]:
    """A fresh page of the dashboard; what else it complains of on its console fails the test."""
    with opened(browser, url, token, refusals=refusals) as page:
        yield page


@pytest.fixture(scope="module")
def pair(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Job, Job]]:
    """Two jobs that train, of 2 ranks each, and that differ in their learning rate and in a label."""
    model = write_slow_model(tmp_path_factory.mktemp("resting"))
    with plane.client() as client:
        made = []
        for name, rate in (("tortoise", 1e-3), ("hare", 1e-2)):
            wanted = spec(name, steps=1_000_000, model=model, optimizer={"lr": rate}, eval={"every": 20, "batches": 1})
            made.append(client.submit({**wanted, "labels": {"race": name}}))
        try:
            for job in made:
                until(partial(trains, client, job), PATIENCE_S, f"steps of {job.name}")
            yield made[0], made[1]
        finally:
            for job in made:
                client.cancel(job.id)


def trains(client: Client, job: Job) -> bool:
    progress = client.job(job.id).progress
    return progress is not None and progress.step > 40


@pytest.mark.full
def test_from_the_first_page_to_the_first_loss_in_three_clicks(page: Page, plane: ControlPlane) -> None:
    page.goto("/")
    clicks = [page.get_by_role("link", name="New job").first, page.get_by_role("button", name="Submit")]
    for click in clicks:
        click.click()
    assert len(clicks) <= 3
    expect(page).to_have_url(re.compile("/jobs/job-"))
    expect(page.get_by_role("heading", name="quickstart")).to_be_visible()
    with plane.client() as client:
        job = page.url.rpartition("/")[2]
        try:
            expect(page.locator("[data-fact='Loss']")).to_have_text(re.compile(r"^\d"), timeout=PATIENCE_MS)
            expect(page.get_by_role("figure", name=re.compile("[Ll]oss")).first).to_be_visible(timeout=PATIENCE_MS)
        finally:
            with contextlib.suppress(ApiError):  # it may have ended by itself
                client.cancel(job)
        until(lambda: client.job(job).state in FINAL, PATIENCE_S, "room for the next jobs")


@pytest.mark.full
def test_a_wrong_spec_is_reported_while_it_is_written(page: Page, refusals: list[str]) -> None:
    refusals.append("status of 422")
    page.goto("/new")
    expect(page.get_by_role("region", name="What would run")).to_contain_text("803,968")
    write_spec(page, "name: wrong\ntrain:\n  layout: { data: 2, tensor: 3 }\n  steps: 10\n  global_batch: 8\n")
    findings = page.get_by_role("region", name="Errors")
    expect(findings).to_contain_text("train.layout.tensor")
    expect(findings).to_contain_text("Tensor degrees that divide this model")
    expect(page.locator(".cm-wrong")).to_have_text("3")
    assert_accessible(page)
    findings.get_by_role("button", name="Line 3").click()
    helped = page.get_by_role("region", name="Help for the field under the cursor")
    expect(helped).to_contain_text("Tensor-parallel degree")
    write_spec(page, "name: right\ntrain:\n  layout: { data: 2, tensor: 2 }\n  steps: 10\n  global_batch: 8\n")
    expect(page.get_by_role("region", name="What would run")).to_contain_text("data 2 × tensor 2")
    expect(findings).to_be_hidden()


@pytest.mark.full
def test_the_cluster_says_who_holds_it(page: Page, pair: tuple[Job, Job]) -> None:
    page.goto("/cluster")
    node = page.get_by_role("article")
    for job in pair:
        holder = node.get_by_role("listitem").filter(has_text=job.name)
        expect(holder).to_contain_text("2 ranks", timeout=PATIENCE_MS)
        expect(holder).to_contain_text("running")
    node.get_by_role("link", name="hare").click()
    expect(page).to_have_url(re.compile(f"/jobs/{pair[1].id}$"))


def test_a_machine_is_cordoned_and_its_jobs_go_on(page: Page, plane: ControlPlane, pair: tuple[Job, Job]) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.goto("/cluster")
    card = page.get_by_role("article")
    dialog = page.get_by_role("dialog")
    try:
        card.get_by_role("button", name="Cordon").focus()
        page.keyboard.press("Enter")
        page.set_viewport_size({"width": 360, "height": 740})
        page.emulate_media(color_scheme="dark")
        page.screenshot(path=SHOTS / "cordon-dark-360.png", animations="disabled")
        assert_accessible(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.keyboard.press("Escape")
        expect(dialog).to_be_hidden()
        expect(card.get_by_role("button", name="Cordon")).to_be_focused()
        page.keyboard.press("Enter")
        dialog.get_by_label("Duration").select_option("1 hour")
        dialog.get_by_label("Reason").fill("fan replaced at noon")
        dialog.get_by_role("button", name="Cordon").click()
        expect(card).to_contain_text(re.compile("Cordoned by local until .*: fan replaced at noon"))
        row = page.get_by_role("region", name="Cordons").get_by_role("row").filter(has_text="fan replaced at noon")
        expect(row).to_contain_text("local")
        expect(card.get_by_role("listitem").filter(has_text="hare")).to_contain_text("running")
        assert_accessible(page)
        card.get_by_role("button", name="Lift cordon").click()
        dialog.get_by_role("button", name="Lift the cordon").click()
        expect(row).to_contain_text("lifted by local")
        expect(card).not_to_contain_text("Cordoned by")
        with plane.client() as client:
            assert [client.job(job.id).state for job in pair] == ["running", "running"]
    finally:
        with plane.client() as client:
            client.uncordon(client.nodes()[0].id)


@pytest.mark.full
def test_two_jobs_are_compared(page: Page, pair: tuple[Job, Job]) -> None:
    page.goto("/?label=race%3Dtortoise")
    rows = page.get_by_role("row")
    expect(rows.filter(has_text="tortoise")).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("Loss of tortoise"))).to_be_visible()
    expect(rows.filter(has_text="hare")).to_have_count(0)
    page.goto("/?state=running&sort=name")
    for job in pair:
        page.get_by_role("checkbox", name=f"Select {job.name}").check()
    page.get_by_role("group", name="Selected jobs").get_by_role("link", name="Compare").click()
    for title in ("Loss", "Validation loss", "Tokens per second"):
        expect(page.get_by_role("figure", name=re.compile(f"^{title}"))).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="train.optimizer.lr")).to_contain_text("0.01")
    for axis in ("tokens", "time"):
        page.get_by_label("Along").select_option(axis)
        expect(page).to_have_url(re.compile(f"job={pair[0].id}&job={pair[1].id}|job={pair[1].id}&job={pair[0].id}"))
        expect(page).to_have_url(re.compile(f"by={axis}$"))
        expect(page.locator(".chart .u-legend").first).to_contain_text(axis.capitalize())
    page.reload()
    expect(page.get_by_label("Along")).to_have_value("time")
    page.get_by_role("button", name="Remove hare").click()
    expect(page.get_by_role("row").filter(has_text="hare")).to_have_count(0)
    page.get_by_role("searchbox", name="Search for a job to add").fill("hare")
    page.get_by_role("button", name="Add hare").click()
    expect(page.get_by_role("row").filter(has_text="train.optimizer.lr")).to_be_visible()


@pytest.mark.full
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 768, 360])
def test_every_page_is_fit_to_be_seen(
    browser: Browser, plane: ControlPlane, url: str, token: str, pair: tuple[Job, Job], scheme: Any, width: int
) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    both = "&".join(f"job={job.id}" for job in pair)
    with plane.client() as client:
        client.set_secret("HF_TOKEN", "hf_abcdefgh")
    pages = {"jobs": "/", "new": "/new", "cluster": "/cluster", "compare": f"/compare?{both}", "secrets": "/secrets"}
    context = signed_in(browser, url, token, viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    for name, address in pages.items():
        page.goto(address)
        expect(page.locator(SHOWN[name]).first).to_be_visible(timeout=PATIENCE_MS)
        page.screenshot(path=SHOTS / f"{name}-{scheme}-{width}.png", full_page=True, animations="disabled")
        assert_accessible(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
    context.close()


#: What a page shows once it is whole.
SHOWN = {
    "jobs": ".sparkline",
    "new": ".facts",
    "cluster": ".node-card-holders",
    "compare": ".chart canvas",
    "secrets": ".plain-table",
}


@pytest.mark.full
def test_what_a_program_logs_is_drawn(page: Page, plane: ControlPlane) -> None:
    """A chart for each name, found by a part of it, with the extremes of several ranks."""
    script = "import shardyard\nfor step in range(60):\n"
    script += "    shardyard.log({'train/loss': 3 / (1 + step), 'val/accuracy': step / 60}, step=step)"
    with plane.client() as client:
        wanted = {"name": "logs", "command": [sys.executable, "-c", script], "ranks": 2}
        job = client.wait(client.submit(wanted).id, timeout_s=PATIENCE_S)
        assert job.state == "succeeded", job.message
    page.goto(f"/jobs/{job.id}/metrics")
    for name in ("train/loss", "val/accuracy"):
        expect(page.get_by_role("figure", name=name)).to_be_visible(timeout=PATIENCE_MS)
        expect(page.get_by_role("figure", name=name).locator("canvas")).to_be_visible()
    expect(page.get_by_role("figure", name="train/loss")).to_have_accessible_name(re.compile("at step 59"))
    expect(page.locator(".tab-links a")).to_have_text(
        ["Overview", "Metrics", "System", "Logs", "Checkpoints", "Files", "Spec"]
    )
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / "logged-metrics.png", full_page=True, animations="disabled")
    assert_accessible(page)
    page.get_by_role("searchbox", name="Find metrics").fill("acc")
    expect(page.get_by_role("figure", name="train/loss")).to_have_count(0)
    expect(page.get_by_role("figure", name="val/accuracy")).to_be_visible()


@pytest.mark.full
def test_the_list_of_jobs_has_columns_of_choice(page: Page, pair: tuple[Job, Job]) -> None:
    page.goto("/")
    page.get_by_role("button", name="Columns…").click()
    dialog = page.get_by_role("dialog", name="Columns")
    dialog.get_by_role("searchbox").fill("optimizer.lr")
    dialog.get_by_role("checkbox", name="spec.train.optimizer.lr").check()
    assert_accessible(page)
    dialog.get_by_role("button", name="Close").click()
    head = page.get_by_role("columnheader", name="optimizer.lr")
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "ascending")
    rates = [str(job.spec["train"]["optimizer"]["lr"]) for job in pair]
    for job, rate in zip(pair, rates, strict=True):
        expect(page.get_by_role("row").filter(has=page.get_by_role("link", name=job.name))).to_contain_text(rate)
    assert rates[0] != rates[1]
    page.goto(page.url)
    expect(page.get_by_role("columnheader", name="optimizer.lr")).to_have_attribute("aria-sort", "ascending")
    assert_accessible(page)
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / "jobs-columns.png", full_page=True, animations="disabled")


def test_a_secret_is_stored_and_removed(page: Page, plane: ControlPlane) -> None:
    page.goto("/secrets")
    page.get_by_label("Name").fill("BROWSER_TOKEN")
    page.get_by_label("Text").fill("a-text-that-is-secret")
    page.get_by_role("button", name="Store").click()
    row = page.get_by_role("row").filter(has_text="BROWSER_TOKEN")
    expect(row).to_be_visible()
    assert "a-text-that-is-secret" not in page.content() and page.get_by_label("Text").input_value() == ""
    with plane.client() as client:
        assert "BROWSER_TOKEN" in {secret.name for secret in client.secrets()}
    row.get_by_role("button").click()
    page.get_by_role("dialog", name="Remove BROWSER_TOKEN?").get_by_role("button", name="Remove").click()
    expect(row).to_have_count(0)


def test_the_pages_are_walked_by_keyboard(page: Page) -> None:
    page.goto("/")
    expect(page.get_by_role("heading", name="Jobs", exact=True)).to_be_visible()  # until then a key meets an empty page
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    for expected in ("Shardyard", "Jobs", "New job", "Cluster"):
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name=expected, exact=True).first).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Cluster")).to_be_visible()
    expect(page.locator("#content")).to_be_focused()
    expect(page).to_have_title("Cluster · Shardyard")


def test_jobs_are_cancelled_together(page: Page, pair: tuple[Job, Job]) -> None:
    page.goto("/?state=running")
    for job in pair:
        page.get_by_role("checkbox", name=f"Select {job.name}").check()
    page.get_by_role("button", name="Cancel 2 jobs").click()
    dialog = page.get_by_role("dialog", name="Cancel 2 jobs?")
    expect(dialog).to_contain_text("tortoise")
    dialog.get_by_role("button", name="Cancel 2 jobs").click()
    expect(dialog).to_be_hidden()
    page.goto("/?state=cancelled")
    for job in pair:
        expect(page.get_by_role("link", name=job.name)).to_be_visible(timeout=PATIENCE_MS)
