"""Links to a job's files: one folder of them per job and content, and links in the working copy that replace nothing of the code's."""

from pathlib import Path

import pytest

from shardyard.workers.program.files.errors import FilesNotFetched
from shardyard.workers.program.files.links import link_into, links


@pytest.fixture
def found(tmp_path: Path) -> dict[str, Path]:
    """Two targets and their files in the cache."""
    files = {"data/train": tmp_path / "cache/files/one", "model": tmp_path / "cache/files/two"}
    for path in files.values():
        path.mkdir(parents=True)
        (path / "a").write_text(path.name)
    return files


def test_all_links_are_below_one_folder(found: dict[str, Path], tmp_path: Path) -> None:
    with links(found, "job-a", tmp_path / "cache", lambda: False) as first:
        assert (first / "data/train/a").read_text() == "one" and (first / "model/a").read_text() == "two"
        with links(found, "job-a", tmp_path / "cache", lambda: False) as second:
            assert first == second
        with links({"model": found["model"]}, "job-a", tmp_path / "cache", lambda: False) as third:
            assert third != first and [path.name for path in third.iterdir()] == ["model"]


def test_a_later_attempt_replaces_the_links_of_an_earlier_one(found: dict[str, Path], tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    link_into(copy, found, tmp_path / "cache")
    link_into(copy, {**found, "model": found["data/train"]}, tmp_path / "cache")
    assert (copy / "model/a").read_text() == (copy / "data/train/a").read_text() == "one"
    assert sorted(path.name for path in copy.rglob("*") if path.is_symlink()) == ["model", "train"]


@pytest.mark.parametrize("there", ["folder", "file", "link", "above"])
def test_what_the_code_has_is_not_replaced(found: dict[str, Path], tmp_path: Path, there: str) -> None:
    copy, outside = tmp_path / "copy", tmp_path / "outside"
    copy.mkdir()
    outside.mkdir()
    match there:
        case "folder":
            (copy / "model").mkdir()
        case "file":
            (copy / "data").write_text("mine")
        case "link":
            (copy / "model").symlink_to(outside)
        case _:
            (copy / "data").symlink_to(outside)
    with pytest.raises(FilesNotFetched, match="the code has something at this path; choose another target"):
        link_into(copy, found, tmp_path / "cache")
    assert list(outside.iterdir()) == []
