"""The tab Files in a real browser: images, tables and downloads of what a program logged."""

import hashlib
from pathlib import Path
from typing import Any

import pytest
from harness.live_server import LiveJob, LiveServer
from harness.page import SHOTS, assert_accessible, signed_in
from playwright.sync_api import Browser, expect

from shardyard.workers.messages.artifact import Artifact
from shardyard.workers.messages.event import ArtifactsEvent, to_json
from shardyard.workers.program.image_file import png
from shardyard.workers.program.table_file import content


@pytest.fixture(scope="module")
def program(stage: LiveServer) -> LiveJob:
    """A program that logged two names of images at three steps, a table and two files."""
    placed = stage.placed({"name": "files", "command": ["python", "-c", "pass"], "ranks": 2})
    folder = Path(stage.settings.artifacts(placed.id))
    folder.mkdir(parents=True)

    def kept(name: str, file: bytes, **known: Any) -> Artifact:
        digest = hashlib.sha256(file).hexdigest()
        (folder / digest).write_bytes(file)
        return Artifact(name=name, bytes=len(file), sha256=digest, **known)

    images = [
        kept(
            name,
            png(bytes(range(0, 240, 5)) * (16 + step), 16 + step, 16, 3),
            step=step,
            type="image",
            media_type="image/png",
        )
        for name in ("samples/train", "samples/eval")
        for step in (1, 10, 100)
    ]
    rows = [[f"sentence {at}", at / 7] for at in range(500)]
    table = kept("errors", content(["text", "loss"], rows), step=100, type="table", media_type="text/csv")
    files = (
        *images,
        table,
        kept("model/weights.pt", bytes(5000)),
        kept("page.html", b"<script>document.title = 'run'</script>"),
    )
    placed.state("starting")
    placed.state("running")
    placed.emit(("artifacts", to_json(ArtifactsEvent(rank=0, generation=1, artifacts=files))))
    return placed


@pytest.mark.parametrize(
    ("scheme", "width"),
    [
        ("light", 1280),
        pytest.param("dark", 1280, marks=pytest.mark.full),
        pytest.param("dark", 360, marks=pytest.mark.full),
    ],
)
def test_files_are_seen_and_downloaded(
    browser: Browser, stage: LiveServer, program: LiveJob, scheme: Any, width: int
) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    context = signed_in(browser, stage.url, stage.token, viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    page.goto(f"/jobs/{program.id}/files")
    image = page.get_by_role("img", name="samples/train, step 100")
    expect(image).to_be_visible()
    assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") == 16
    page.get_by_role("slider", name="samples/train").fill("0")
    expect(page.get_by_role("img", name="samples/train, step 1", exact=True)).to_be_visible()
    page.get_by_role("button", name="Show errors, step 100").click()
    table = page.get_by_role("region", name="errors, step 100")
    expect(table.get_by_role("row")).to_have_count(101)
    expect(table.get_by_text("The first 100 rows")).to_be_visible()
    assert_accessible(page)
    page.screenshot(path=SHOTS / f"tab-files-{scheme}-{width}.png", full_page=True, animations="disabled")
    assert int(page.evaluate("document.documentElement.scrollWidth")) <= width
    with page.expect_download() as download:
        page.get_by_role("link", name="Download page.html").click()
    assert download.value.suggested_filename == "page.html"
    assert Path(download.value.path()).read_bytes() == b"<script>document.title = 'run'</script>"
    context.close()
