"""The state of one checkpoint, as far as this process can see it."""

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pytest
from harness.stored_checkpoints import FILE, checkpoint_path, flip_checkpoint_bit, save_checkpoint

from shardyard.workers.checkpoint.inspect import inspect_checkpoint
from shardyard.workers.checkpoint.manifest import MANIFEST, File, Manifest, write
from shardyard.workers.storage.folder import Folder
from shardyard.workers.storage.open_folder import folder_at


def verdict(root: Path, step: int, verify: bool) -> str:
    return inspect_checkpoint(str(checkpoint_path(root, step)), verify=verify).verdict


def test_files_are_read_only_to_verify(tmp_path: Path) -> None:
    for step in (1, 2):
        save_checkpoint(tmp_path, step)
    flip_checkpoint_bit(tmp_path, 2)
    assert [verdict(tmp_path, step, False) for step in (1, 2, 3)] == ["present", "present", "deleted"]
    assert [verdict(tmp_path, step, True) for step in (1, 2, 3)] == ["valid", "corrupt", "deleted"]


def test_an_inspection_says_what_is_corrupt_and_what_was_compared(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1)
    valid = inspect_checkpoint(str(checkpoint_path(tmp_path, 1)), verify=True)
    assert (valid.why, valid.corrupt) == (None, ()) and valid.files > 0 and valid.bytes > 0
    flip_checkpoint_bit(tmp_path, 1)
    corrupt = inspect_checkpoint(str(checkpoint_path(tmp_path, 1)), verify=True)
    assert corrupt.corrupt == (FILE,) and corrupt.why and FILE in corrupt.why and "older checkpoint" in corrupt.why
    assert (corrupt.files, corrupt.bytes) == (valid.files, valid.bytes)


def test_files_that_a_program_has_replaced_by_a_fifo_or_a_device_are_corrupt(tmp_path: Path) -> None:
    """An operation that waits for them takes a turn of all, for hours."""
    path = checkpoint_path(tmp_path, 1)
    path.mkdir()
    names = ("fifo", "device", "file")
    write(folder_at(path), Manifest(1, {}, {}, dict.fromkeys(names, File(0, hashlib.sha256(b"").hexdigest(), ()))))
    (path / "file").touch()
    os.mkfifo(path / "fifo")
    (path / "device").symlink_to("/dev/zero")
    found = inspect_checkpoint(str(path), verify=True)
    assert (found.verdict, sorted(found.corrupt)) == ("corrupt", ["device", "fifo"])


@pytest.mark.parametrize(("replaced", "expected"), [(False, "deleted"), (True, "unknown")])
def test_one_that_is_removed_or_saved_again_meanwhile_is_not_corrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaced: bool, expected: str
) -> None:
    """A save that makes room removes the manifest, then the files; verifying takes minutes."""
    for step in (1, 2):
        save_checkpoint(tmp_path, step)
    path = checkpoint_path(tmp_path, 1)

    def compared(folder: Folder, manifest: Manifest) -> list[str]:
        if replaced:
            write(folder, replace(manifest, training={"another": "save"}))
        else:
            (path / MANIFEST).unlink()
        return [FILE]

    monkeypatch.setattr("shardyard.workers.checkpoint.verify.compare", compared)
    assert verdict(tmp_path, 1, True) == expected


def test_a_folder_that_is_empty_or_away_says_nothing(tmp_path: Path) -> None:
    for root in (tmp_path, tmp_path / "not mounted"):
        found = inspect_checkpoint(str(root / "step-00000001"), verify=True)
        assert found.verdict == "unknown" and found.why and str(root) in found.why
