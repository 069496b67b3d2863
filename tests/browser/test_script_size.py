"""The dashboard's scripts stay small, so that it opens at once over a slow line."""

import gzip
import re
from pathlib import Path

import pytest

from shardyard.api.http.dashboard_files import DIST

MOST = 200_000
#: The first page, with its style sheet: charts and the tabs of a job come when they are first shown.
MOST_FIRST = 130_000


@pytest.fixture
def assets() -> Path:
    folder = DIST / "assets"
    assert folder.is_dir(), "the dashboard is not built: run `make dashboard`"
    return folder


def packed(file: Path) -> int:
    return len(gzip.compress(file.read_bytes()))


def test_all_scripts_together_are_at_most_200_kb(assets: Path) -> None:
    assert 0 < sum(map(packed, assets.glob("*.js"))) <= MOST


def test_the_first_page_loads_at_most_130_kb_and_no_chart(assets: Path) -> None:
    first = DIST / "index.html"
    files = [DIST / name for name in re.findall(r'(?:src|href)="/(assets/[^"]+)"', first.read_text())]
    assert {file.suffix for file in files} == {".js", ".css"}
    assert packed(first) + sum(map(packed, files)) <= MOST_FIRST
    drawing = [file for file in assets.glob("*.js") if "u-legend" in file.read_text()]
    assert drawing and not set(drawing) & set(files)
