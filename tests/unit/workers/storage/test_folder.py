"""A folder that a dead process was filling can be filled again; what cannot be read is not taken for missing."""

import contextlib
import errno
import os
import re
import shutil
from pathlib import Path

import pytest

from shardyard.workers.regular_files import UnfitFile
from shardyard.workers.storage.errors import StorageDenied, StorageUnreachable, StorageUnreadable
from shardyard.workers.storage.folder import Folder
from shardyard.workers.storage.local_folder import LocalFolder

LAST = "config.json"


def fill(out: Folder) -> None:
    with out.filled(last=LAST) as partial:
        for name in ("weights", LAST):
            (partial / name).write_text("{}")


def test_what_a_dead_writer_left_is_discarded_and_nothing_else(root: Folder) -> None:
    out, other = root / "out", root / "output"
    fill(out)
    fill(other)
    for _ in range(2):
        out.discard(LAST)
        assert (sorted(out.files()), sorted(other.files())) == ([LAST, "weights"], [LAST, "weights"])
    if isinstance(root, LocalFolder):  # its writers fill another folder, which they rename
        left = [Path(root.where) / name for name in (".out.7.partial", ".output.7.partial")]
        for folder in left:
            folder.mkdir()
        out.discard(LAST)
        assert [folder.exists() for folder in left] == [False, True]
    else:  # of a bucket's, the last file is missing
        out.remove(LAST)
        with contextlib.suppress(FileExistsError):
            fill(out)
            raise AssertionError("it was filled a second time")
        out.discard(LAST)
        assert out.files() == {}
        fill(out)


def test_what_dies_while_a_filled_folder_is_removed_leaves_nothing_that_counts(
    root: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A local folder is removed in any order, and a bucket's objects several at once."""
    out = root / "out"
    fill(out)

    def killed(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as dying, pytest.raises(ZeroDivisionError):
        dying.setattr(shutil, "rmtree", killed)
        dying.setattr(type(root), "remove_all", killed)
        out.discard(LAST, complete=True)
    assert not out.has(LAST)
    out.discard(LAST)
    assert out.files() == {}
    fill(out)
    out.discard(LAST, complete=True)
    assert out.files() == {} and (not isinstance(root, LocalFolder) or [*Path(root.where).iterdir()] == [])
    out.discard(LAST, complete=True)  # there is none


def test_what_has_appeared_survives_a_power_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced, beats, sync = [], [0], os.fsync

    def noted(handle: int) -> None:
        sync(handle)
        synced.append(re.sub(r"\.out\.\w+\.partial", "partial", str(Path(f"/proc/self/fd/{handle}").readlink())))

    monkeypatch.setattr(os, "fsync", noted)
    with LocalFolder(str(tmp_path / "out")).filled(LAST, lambda: beats.append(1)) as partial:
        for name in ("weights", "tokenizer.json", LAST):
            (partial / name).write_text("{}")
    names = (LAST, "tokenizer.json", "weights")
    assert sorted(synced[:3]) == [f"{tmp_path}/partial/{name}" for name in names]
    assert synced[3:] == [f"{tmp_path}/partial", str(tmp_path)] and sum(beats) == 3


def test_a_writer_removes_no_other_writers_folder(tmp_path: Path) -> None:
    """Writers in containers have the same process id, and a folder that all of them see."""
    out, other = LocalFolder(str(tmp_path / "out")), LocalFolder(str(tmp_path / "out"))
    with out.filled(last=LAST) as partial:
        (partial / LAST).write_text("{}")
        with pytest.raises(ZeroDivisionError), other.filled(last=LAST):
            _ = 1 / 0
        assert (partial / LAST).exists()
    assert out.files() == {LAST: 2}


@pytest.mark.parametrize("links", [True, False])
def test_of_several_first_writers_the_first_one_stays(
    root: Folder, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    if not links:
        monkeypatch.setattr(os, "link", refused)
    for content in (b"first", b"another"):
        (root / "job").publish("record", content, replace=False)
    assert (root / "job").read("record") == b"first"
    assert (root / "job").files() == {"record": 5}


def test_a_writer_that_began_before_the_first_one_ended_does_not_replace_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, link = LocalFolder(str(tmp_path)), os.link

    def linked(source: Path, target: Path) -> None:
        monkeypatch.setattr(os, "link", link)
        folder.publish("record", b"first", replace=False)
        link(source, target)

    monkeypatch.setattr(os, "link", linked)
    folder.publish("record", b"another", replace=False)
    assert (folder.read("record"), folder.files()) == (b"first", {"record": 5})


def test_a_file_that_another_rank_removes_meanwhile_is_not_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ranks of a program publish a step and discard equal files of it at the same time."""
    folder, entries = LocalFolder(str(tmp_path)), LocalFolder._entries
    for name in ("stays", "goes"):
        folder.write(name, memoryview(b"abc"))

    def listed(self: LocalFolder) -> list[os.DirEntry[str]]:
        found = entries(self)
        (tmp_path / "goes").unlink()
        return found

    monkeypatch.setattr(LocalFolder, "_entries", listed)
    assert folder.files() == {"stays": 3}


def test_a_file_that_the_disk_cannot_show_is_not_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has no manifest, or no pin, is removed."""
    folder = LocalFolder(str(tmp_path))
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert not folder.has("missing") and not folder.has("loop") and not (folder / "missing").has("below")

    def failed(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Path, "stat", failed)
    with pytest.raises(OSError, match="Input/output"):
        folder.has("manifest.json")


@pytest.mark.parametrize("kind", ["a FIFO", "a device"])
def test_what_is_no_regular_file_is_not_read(tmp_path: Path, kind: str) -> None:
    """A FIFO waits for a writer, and a device has no end. The size of both is 0."""
    folder = LocalFolder(str(tmp_path))
    if kind == "a FIFO":
        os.mkfifo(tmp_path / "file")
    else:
        (tmp_path / "file").symlink_to("/dev/zero")
    for read in (
        lambda: folder.read("file"),
        lambda: folder.read_into("file", 0, memoryview(bytearray(3))),
        lambda: folder.sha256("file", 0),
    ):
        with pytest.raises(UnfitFile, match=kind):
            read()


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ESTALE, StorageUnreachable),
        (errno.EMFILE, StorageUnreachable),
        (errno.EACCES, StorageDenied),
        (errno.EIO, StorageUnreadable),
        (errno.ENOENT, FileNotFoundError),
    ],
    ids=errno.errorcode.get,
)
def test_an_error_that_says_nothing_of_the_content_is_the_storages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[OSError]
) -> None:
    folder = LocalFolder(str(tmp_path))
    folder.write("file", memoryview(b"abc"))

    def failed(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "stat", failed)
    for read in (
        lambda: folder.read("file"),
        lambda: folder.read_into("file", 0, memoryview(bytearray(3))),
        lambda: folder.sha256("file", 3),
    ):
        with pytest.raises(OSError, match=re.escape(os.strerror(number))) as raised:
            read()
        assert type(raised.value) is kind


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ESTALE, StorageUnreachable),
        (errno.EIO, StorageUnreadable),
        (errno.EACCES, StorageDenied),
        (errno.EINVAL, OSError),
    ],
    ids=errno.errorcode.get,
)
def test_a_listing_that_fails_says_nothing_of_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[OSError]
) -> None:
    folder = LocalFolder(str(tmp_path))

    def failed(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "stat", failed)
    monkeypatch.setattr(os, "scandir", failed)
    for look in (folder.folders, folder.files, lambda: folder.has("manifest.json")):
        with pytest.raises(OSError, match=re.escape(os.strerror(number))) as raised:
            look()
        assert type(raised.value) is kind
