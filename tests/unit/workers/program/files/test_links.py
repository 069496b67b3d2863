"""Links to a job's files: one folder of them per job, and links in the working copy that replace nothing of the code's."""

import errno
from pathlib import Path

import pytest

from shardyard.workers.program.files.errors import FilesNotFetched
from shardyard.workers.program.files.links import link_into, links, taken, unlink_from


@pytest.fixture
def found(tmp_path: Path) -> dict[str, Path]:
    """Two targets and their files in the cache."""
    files = {"data/train": tmp_path / "cache/files/one", "model": tmp_path / "cache/files/two"}
    for path in files.values():
        path.mkdir(parents=True)
        (path / "a").write_text(path.name)
    return files


def test_all_links_are_below_one_folder_wherever_a_node_has_the_files(found: dict[str, Path], tmp_path: Path) -> None:
    """As on a node whose Hugging Face cache has them, and on one that fetches."""
    elsewhere = {**found, "model": found["data/train"]}
    with links(found, "job-a", tmp_path / "cache", lambda: False) as first:
        assert (first / "data/train/a").read_text() == "one" and (first / "model/a").read_text() == "two"
        with links(elsewhere, "job-a", tmp_path / "cache", lambda: False) as second:
            assert second == first and (first / "model/a").read_text() == "one"
        with links(found, "job-b", tmp_path / "cache", lambda: False) as other:
            assert other != first and (other / "model/a").read_text() == "two"
    assert sorted(path.name for path in (tmp_path / "cache/mounts").iterdir()) == [
        "job-a", "job-a.lock", "job-b", "job-b.lock",
    ]  # fmt: skip


def test_a_later_attempt_replaces_the_links_of_an_earlier_one(found: dict[str, Path], tmp_path: Path) -> None:
    """Also where the files were not in this cache then: the node's Hugging Face cache may have lost them since."""
    copy, hub = tmp_path / "copy", tmp_path / "huggingface"
    copy.mkdir()
    hub.mkdir()
    for path in (hub, found["model"], found["data/train"]):
        with links({**found, "model": path}, "job-a", tmp_path / "cache", lambda: False) as folder:
            link_into(copy, found, folder)
            assert (copy / "model").resolve() == path
    assert (copy / "model/a").read_text() == (copy / "data/train/a").read_text() == "one"
    assert sorted(path.name for path in copy.rglob("*") if path.is_symlink()) == ["model", "train"]


def test_a_name_may_be_as_long_as_the_spec_allows(found: dict[str, Path], tmp_path: Path) -> None:
    target = "\N{CJK UNIFIED IDEOGRAPH-8A9E}" * 85  # 255 bytes
    with links({target: found["model"]}, "job-a", tmp_path / "cache", lambda: False) as folder:
        link_into(tmp_path, [target], folder)
    assert (tmp_path / target / "a").read_text() == "two"


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
        link_into(copy, found, tmp_path / "cache/mounts/job-a")
    assert list(outside.iterdir()) == []


def test_links_are_removed_from_the_code_with_the_folders_that_they_leave_empty(tmp_path: Path) -> None:
    code, folder = tmp_path / "code", tmp_path / "links"
    (code / "kept").mkdir(parents=True)
    (code / "kept" / "own").write_text("mine")
    (code / "mine").symlink_to(tmp_path)
    targets = ["a/b/c", "a/d", "kept/e"]
    link_into(code, targets, folder)
    assert [taken(code, target, folder) for target in (*targets, "kept", "mine", "none")] == [False] * 3 + [
        True
    ] * 2 + [False]
    unlink_from(code, [*targets, "kept", "mine", "none"], folder)
    assert sorted(path.name for path in code.rglob("*")) == ["kept", "mine", "own"]


def test_a_full_disk_is_not_taken_for_what_the_code_has(
    found: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(OSError, match="No space left"):
        link_into(tmp_path / "copy", found, tmp_path / "cache")
