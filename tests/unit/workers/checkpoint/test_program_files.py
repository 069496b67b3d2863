"""Checkpoints of programs, in a folder and in a bucket: whole and valid, or not there."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardyard.workers.checkpoint import program_files as module
from shardyard.workers.checkpoint.errors import CheckpointCorrupt, CheckpointError, CheckpointRemoved
from shardyard.workers.checkpoint.inspect import inspect_checkpoint
from shardyard.workers.checkpoint.manifest import MANIFEST, Manifest, write
from shardyard.workers.checkpoint.program_files import (
    Part,
    Published,
    adopt_part,
    check,
    discard,
    fetch,
    publish,
    read_program,
    sources,
    write_part,
)
from shardyard.workers.checkpoint.retention import complete, folder, step_of
from shardyard.workers.storage.errors import StorageUnreachable
from shardyard.workers.storage.folder import Folder
from shardyard.workers.storage.local_folder import LocalFolder
from shardyard.workers.storage.open_folder import folder_at


def truncated_before(self: LocalFolder, name: str, content: Any) -> None:
    os.truncate(Path(self.where).parents[1] / "weights", 0)
    WRITE(self, name, content)


def truncated_after(self: LocalFolder, name: str, content: Any) -> None:
    WRITE(self, name, content)
    os.truncate(Path(self.where).parents[1] / "weights", 0)


def written_again(self: LocalFolder, name: str, content: Any) -> None:
    WRITE(self, name, content)
    file = Path(self.where).parents[1] / "weights"
    file.write_text("behind")
    os.utime(file, ns=(1, 1))  # clocks of file systems are coarse


WRITE = LocalFolder.write


@pytest.fixture(params=["folder", "bucket"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    if request.param == "folder":
        return folder_at(str(tmp_path / "storage"))
    return folder_at(str(request.getfixturevalue("prefix")))


def written(tmp_path: Path, text: str) -> Path:
    """A folder of files, as a program writes it."""
    path = tmp_path / "out"
    (path / "a" / "b").mkdir(parents=True, exist_ok=True)
    (path / "a" / "b" / "weights ü.bin").write_text(text)
    (path / "config.json").write_text("{}")
    (path / "empty").touch()
    return path


def saved(root: Folder, step: int, path: Path, keep: int = 2, spared: tuple[int, ...] = ()) -> Published:
    part = write_part(folder(root, step), 0, sources(path))
    return publish(root, step, "files", [part], keep, spared)


def read_back(root: Folder, step: int, place: Path, rank: int = 0) -> dict[str, str]:
    fetch(read_program(folder(root, step)), rank, place)
    return {file.relative_to(place).as_posix(): file.read_text() for file in place.rglob("*") if file.is_file()}


def test_a_folder_comes_back_with_its_own_names(root: Folder, tmp_path: Path) -> None:
    done = saved(root, 7, written(tmp_path, "seven"))
    assert (done.bytes, done.kept, done.digest) == (7, (7,), read_program(folder(root, 7)).manifest.sha256)
    content = {"a/b/weights ü.bin": "seven", "config.json": "{}", "empty": ""}
    assert read_back(root, 7, tmp_path / "copy") == content
    found = inspect_checkpoint(done.path, verify=True)
    assert (found.verdict, found.files) == ("valid", 3), found.why


def test_what_the_storage_has_already_becomes_a_checkpoint(root: Folder, tmp_path: Path) -> None:
    stored = root / "run" / "checkpoint_1"
    for where, name, text in (("a/b", "weights ü.bin", "seven"), ("", "config.json", "{}"), ("", ".metadata.json", "")):
        place = stored / "a" / "b" if where else stored
        place.write(name, memoryview(text.encode()))
    part = adopt_part(folder(root, 7), 0, stored, 3)
    done = publish(root, 7, "files", [part], 2, ())
    stored.remove_all()
    (stored / "a" / "b").remove_all()
    assert read_back(root, 7, tmp_path / "copy") == {
        "a/b/weights ü.bin": "seven",
        "config.json": "{}",
        ".metadata.json": "",
    }
    assert (inspect_checkpoint(done.path, verify=True).verdict, read_program(folder(root, 7)).trainer) == ("valid", 3)
    with pytest.raises(CheckpointError, match="no files"):
        adopt_part(folder(root, 8), 0, root / "nothing", 3)
    assert not folder(root, 8).files()


def test_files_without_a_manifest_are_no_checkpoint_and_the_next_save_removes_them(
    root: Folder, tmp_path: Path
) -> None:
    saved(root, 1, written(tmp_path, "one"))
    write_part(folder(root, 2), 0, sources(written(tmp_path, "torn")))  # the process dies before the manifest
    assert [step_of(path) for path in complete(root)] == [1]
    with pytest.raises(CheckpointError, match="no complete checkpoint"):
        read_program(folder(root, 2))
    saved(root, 3, written(tmp_path, "three"))
    assert [step_of(path) for path in complete(root)] == [3, 1]
    assert not folder(root, 2).files()


def test_a_save_whose_files_another_one_has_removed_does_not_count(tmp_path: Path) -> None:
    root = folder_at(str(tmp_path / "storage"))
    late = write_part(folder(root, 1), 0, sources(written(tmp_path, "late")))
    saved(root, 2, written(tmp_path, "two"))
    with pytest.raises(CheckpointError, match=r"another save has removed files of step 1"):
        publish(root, 1, "files", [late], 2, ())
    assert [step_of(path) for path in complete(root)] == [2]


def test_a_save_spares_uploads_of_later_steps(prefix: str, tmp_path: Path) -> None:
    root = folder_at(prefix)

    def uploads() -> list[str]:
        found: list[dict[str, str]] = root._bucket.call("list_multipart_uploads", Prefix=root._key("")).get(
            "Uploads", []
        )  # type: ignore[attr-defined]
        return sorted(one["Key"].split("/")[-2] for one in found)

    for step in (3, 4, 5):  # a fast rank is at step 5 already; those of 3 and 4 have died
        path = folder(root, step)
        path._bucket.call("create_multipart_upload", Key=path._key("rank-0"))  # type: ignore[attr-defined]
    saved(root, 4, written(tmp_path, "four"))
    assert uploads() == ["step-00000005"]
    saved(root, 6, written(tmp_path, "six"))
    assert uploads() == []


@pytest.mark.parametrize("write", [written_again, truncated_before, truncated_after])
def test_a_file_that_changes_while_it_is_saved_is_refused(
    write: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the checkpoint would be corrupt, which only the next start would find. Mapped memory whose file was truncated is SIGBUS."""
    root, file = folder_at(str(tmp_path / "storage")), tmp_path / "weights"
    file.write_text("before")
    monkeypatch.setattr(LocalFolder, "write", write)
    with pytest.raises(CheckpointError, match="changed while it was saved"):
        write_part(folder(root, 1), 0, sources(file))
    assert not folder(root, 1).files()


def test_storage_that_does_not_answer_is_not_asked_once_per_file(tmp_path: Path) -> None:
    asked: list[str] = []

    class Unreachable(LocalFolder):
        def remove(self, name: str) -> None:
            asked.append(name)
            raise StorageUnreachable("no answer")  # after a time-out

    discard(Unreachable(str(tmp_path)), ["a", "b", "c"])
    assert asked == ["a"]


def test_more_files_than_can_be_listed_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_FILES_OF_ALL", 5)
    root = folder_at(str(tmp_path / "storage"))
    parts = [write_part(folder(root, 1), rank, sources(written(tmp_path, "text"))) for rank in range(2)]
    with pytest.raises(CheckpointError, match="6 files of all ranks"):
        publish(root, 1, "files", parts, 2, ())
    assert not complete(root)


def test_names_that_are_no_utf_8_come_back(tmp_path: Path) -> None:
    root, name = folder_at(str(tmp_path / "storage")), os.fsdecode(b"caf\xe9")
    (tmp_path / name).write_text("text")
    part = write_part(folder(root, 1), 0, sources(tmp_path / name))
    assert part.content == Part.from_json(part.to_json()).content
    publish(root, 1, "files", [part], 2, ())
    assert read_back(root, 1, tmp_path / "copy") == {name: "text"}


def test_a_step_that_is_saved_again_replaces_the_first_at_once(root: Folder, tmp_path: Path) -> None:
    saved(root, 1, written(tmp_path, "first"))
    part = write_part(folder(root, 1), 0, sources(written(tmp_path, "second")))
    assert read_back(root, 1, tmp_path / "before")["a/b/weights ü.bin"] == "first"
    publish(root, 1, "files", [part], 2, ())
    assert read_back(root, 1, tmp_path / "after")["a/b/weights ü.bin"] == "second"
    assert len(folder(root, 1).files()) == 4


def test_the_newest_stay_and_the_one_that_ranks_still_read(root: Folder, tmp_path: Path) -> None:
    path = written(tmp_path, "same")
    for step in (1, 2, 3):
        saved(root, step, path, keep=3)
    assert saved(root, 4, path, keep=2, spared=(1,)).kept == (1, 3, 4)
    assert saved(root, 5, path, keep=1).kept == (5,)
    assert [step_of(each) for each in complete(root)] == [5]


def test_damage_is_found_and_nothing_of_it_is_left(root: Folder, tmp_path: Path) -> None:
    saved(root, 1, written(tmp_path, "whole"))
    name = read_program(folder(root, 1)).parts[0]["a/b/weights ü.bin"]
    folder(root, 1).write(name, memoryview(b"WHOLE"))
    with pytest.raises(CheckpointCorrupt, match="does not match its checksum"):
        read_back(root, 1, tmp_path / "copy")
    folder(root, 1).write(name, memoryview(b"who"))
    with pytest.raises(CheckpointCorrupt):
        read_back(root, 1, tmp_path / "copy")
    assert not [file for file in tmp_path.iterdir() if "copy" in file.name]


def test_each_rank_has_its_part(root: Folder, tmp_path: Path) -> None:
    parts = [write_part(folder(root, 1), rank, sources(written(tmp_path, f"rank {rank}"))) for rank in range(3)]
    publish(root, 1, "files", [Part.from_json(part.to_json()) for part in parts], 2, ())
    found = read_program(folder(root, 1))
    assert [found.part(None, own) for own in range(3)] == [0, 1, 2]
    assert read_back(root, 1, tmp_path / "copy", rank=2)["a/b/weights ü.bin"] == "rank 2"
    with pytest.raises(CheckpointError, match="parts of 3 ranks, and none of rank 3"):
        found.part(None, 3)


def test_what_cannot_be_saved_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="does not exist"):
        sources(tmp_path / "nothing")
    (tmp_path / "folder").mkdir()
    with pytest.raises(CheckpointError, match="has no files"):
        sources(tmp_path / "folder")
    (tmp_path / "folder" / "link").symlink_to(tmp_path)
    with pytest.raises(CheckpointError, match="link to a folder"):
        sources(tmp_path / "folder")
    root = folder_at(str(tmp_path / "storage"))
    (tmp_path / "fine").write_text("fine")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="FIFO"):
        write_part(folder(root, 1), 0, [*sources(tmp_path / "fine"), *sources(tmp_path / "pipe")])
    assert not folder(root, 1).files()


def test_manifests_that_lead_elsewhere_and_those_of_training_are_refused(tmp_path: Path) -> None:
    path = folder(folder_at(str(tmp_path)), 1)
    parts = [{"rank": 0, "paths": {"../../etc/passwd": "x"}}]
    write(path, Manifest(1, {"program": {"kind": "files", "parts": parts}}, {}, {}))
    with pytest.raises(CheckpointCorrupt, match="outside its folder"):
        read_program(path)
    for saved in ({}, {"kind": "files", "parts": [{"rank": "first", "paths": {}}]}, {"kind": "files", "parts": 1}, [1]):
        write(path, Manifest(1, {"program": saved}, {}, {}))
        with pytest.raises(CheckpointCorrupt, match="is corrupt"):
            read_program(path)
    write(path, Manifest(1, {"seed": 0}, {}, {}))
    with pytest.raises(CheckpointError, match="training job"):
        read_program(path)
    assert path.has(MANIFEST)


@pytest.mark.parametrize("gone", ["manifest", "all"])
def test_files_that_a_save_removes_while_they_are_read_are_not_damaged(root: Folder, tmp_path: Path, gone: str) -> None:
    saved(root, 1, written(tmp_path, "whole"))
    found = read_program(folder(root, 1))
    name = found.parts[0]["a/b/weights ü.bin"]
    if gone == "manifest":  # which goes first: the file may be half removed
        found.folder.write(name, memoryview(b"who"))
        found.folder.remove(MANIFEST)
    else:
        found.folder.remove_all()
    with pytest.raises(CheckpointRemoved, match="was removed, to make room"):
        fetch(found, 0, tmp_path / "copy")
    with pytest.raises(CheckpointRemoved, match="was removed, to make room"):
        check(found, name, lambda: None)
