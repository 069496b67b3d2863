"""The dashboard's scripts stay small, so that it opens at once over a slow line."""

import gzip
import re
from pathlib import Path

import pytest

from shardyard.api.http.dashboard_files import DIST

MOST = 210_000
#: The first page, with its style sheet: charts and the tabs of a job come when they are first shown.
MOST_FIRST = 130_000
#: The code editor, which is loaded beside a text area that works without it.
MOST_EDITOR = 150_000
#: The YAML parser, which is loaded when a submitted text is changed.
MOST_YAML = 40_000
#: The comparison of runs, which only the page Compare loads, beside the charts.
MOST_COMPARISON = 8_000


@pytest.fixture
def assets() -> Path:
    folder = DIST / "assets"
    assert folder.is_dir(), "the dashboard is not built: run `make dashboard`"
    return folder


def packed(file: Path) -> int:
    return len(gzip.compress(file.read_bytes()))


def test_all_scripts_together_are_at_most_210_kb_without_the_code_editor_and_yaml(assets: Path) -> None:
    editor = set(assets.glob("code-editor-*.js"))
    assert len(editor) == 1 and sum(map(packed, editor)) <= MOST_EDITOR
    yaml = set(assets.glob("browser-*.js"))  # as the package names its entry
    assert len(yaml) == 1 and sum(map(packed, yaml)) <= MOST_YAML
    comparison = set(assets.glob("comparison-*.js"))
    assert len(comparison) == 1 and sum(map(packed, comparison)) <= MOST_COMPARISON
    assert 0 < sum(map(packed, set(assets.glob("*.js")) - editor - yaml - comparison)) <= MOST


def test_the_first_page_loads_at_most_130_kb_and_neither_charts_nor_the_editor(assets: Path) -> None:
    first = DIST / "index.html"
    files = [DIST / name for name in re.findall(r'(?:src|href)="/(assets/[^"]+)"', first.read_text())]
    assert {file.suffix for file in files} == {".js", ".css"}
    assert packed(first) + sum(map(packed, files)) <= MOST_FIRST
    for part in ("u-legend", "cm-content"):
        later = [file for file in assets.glob("*.js") if part in file.read_text()]
        assert later and not set(later) & set(files), part
