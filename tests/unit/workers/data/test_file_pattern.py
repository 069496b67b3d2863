"""Globs in bounds against the standard library's, which has none."""

import glob
import os
import time
from pathlib import Path

import pytest

from shardyard.workers.data import file_pattern
from shardyard.workers.data.errors import DataError
from shardyard.workers.data.file_pattern import matching


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    files = [
        "a.txt",
        "b.md",
        "x/a.txt",
        "x/y/a.txt",
        "x/y/z/b.txt",
        ".hidden/a.txt",
        "x/.a.txt",
        "a/a/a/a.txt",
        "a/b/a/c.txt",
        "[1]/a.txt",
    ]
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "elsewhere").symlink_to(tmp_path / "x")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    (tmp_path / "link.txt").symlink_to(tmp_path / "a.txt")
    os.mkfifo(tmp_path / "fifo.txt")
    return tmp_path


PATTERNS = [
    "*.txt",
    "*/*.txt",
    "**/*.txt",
    "**/a/*.txt",
    "**/a/**/*.txt",
    "**/a/**",
    "**",
    "x/**",
    "*/y/*",
    "?/*",
    "[ax]/*.txt",
    "**/[!x]/a.txt",
    ".*/*.txt",
    "**/.*.txt",
    "*/a/*/a.txt",
    "**/**/**/*.txt",
    "*/../*.txt",
    "[[]1]/*",
    "nowhere/*",
    "**/none",
    "**/link.txt",
    "*/*/*/*",
]


@pytest.mark.parametrize("written", PATTERNS)
def test_the_same_files_as_the_standard_library(tree: Path, written: str) -> None:
    expected = {Path(path) for path in glob.glob(f"{tree}/{written}", recursive=True)}  # noqa: PTH207
    assert matching(f"{tree}/{written}") == sorted(path for path in expected if path.is_file())


def test_a_relative_pattern(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree)
    assert matching("x/*/*.txt") == [Path("x/y/a.txt")]
    assert matching("*.md") == [Path("b.md")]


def test_a_folder_that_lies_in_itself_is_gone_through_once(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    (tmp_path / "again").symlink_to(tmp_path)
    assert matching(f"{tmp_path}/**/*.txt") == [tmp_path / "a.txt"]


def test_each_folder_is_looked_through_once_however_many_stars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path
    for _ in range(30):
        folder = folder / "a"
        folder.mkdir()
    (folder / "a.txt").touch()
    monkeypatch.setattr(file_pattern, "MOST_NAMES", 31)
    assert matching(f"{tmp_path}/**/a/**/a/**/a/**/*.txt") == [folder / "a.txt"]


@pytest.mark.parametrize(
    ("bound", "most", "says"),
    [("MOST_NAMES", 8, "8 names"), ("MOST_MATCHES", 3, "3 files"), ("MOST_LEVELS", 2, "2 folders below each other")],
)
def test_what_goes_beyond_a_bound_is_refused(
    tree: Path, bound: str, most: int, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_pattern, bound, most)
    with pytest.raises(DataError, match=says) as refused:
        matching(f"{tree}/**/*.txt")
    assert refused.value.code == "too_many_files" and "nearer to the files" in refused.value.remedy


def test_a_walk_ends_in_time(tmp_path: Path) -> None:
    for number in range(1_000):
        (tmp_path / str(number)).touch()
    assert matching(f"{tmp_path}/**/*.txt") == []
    with pytest.raises(DataError, match="in time") as refused:
        matching(f"{tmp_path}/**/*.txt", time.monotonic() - 1)
    assert refused.value.code == "too_slow"
