"""Folders that the ranks of a node share: locks, and removal (how they are made is tested with working copies and environments)."""

import contextlib
import os
import subprocess
import time
from pathlib import Path

import pytest

from shardyard.workers.program import shared_folder as module
from shardyard.workers.program.shared_folder import remove_unused, shared_folder


def use(place: Path, made: list[int], wait_s: float = 0.0) -> contextlib.AbstractContextManager[None]:
    def make(lock: int) -> None:
        made.append(lock)
        place.mkdir()

    return shared_folder(place, make, place.is_dir, lambda: False, wait_s)


def test_a_process_that_has_inherited_the_lock_does_not_keep_others_waiting(tmp_path: Path) -> None:
    """As one that a build leaves behind: the folder is made, and ranks may use it."""
    place, left = tmp_path / "one", []

    def make(lock: int) -> None:
        left.append(subprocess.Popen(["sleep", "60"], pass_fds=(lock,)))
        place.mkdir()

    try:
        with shared_folder(place, make, place.is_dir, lambda: False, 0.0), use(place, []):
            assert left[0].poll() is None
    finally:
        left[0].kill()
        left[0].wait()


def test_a_removal_that_is_cut_short_leaves_nothing_that_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, made = tmp_path / "one", list[int]()
    with use(place, made):
        (place / "file").touch()

    class Killed(BaseException):
        pass

    def killed(path: Path, ignore_errors: bool = False) -> None:
        if path.exists():
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(module.shutil, "rmtree", killed)
        with pytest.raises(Killed):
            remove_unused(tmp_path, -1.0, 0)
    assert not place.exists() and len(list(tmp_path.glob(".one.*.removed"))) == 1
    with use(place, made):
        assert len(made) == 2 and not (place / "file").exists()
    assert remove_unused(tmp_path, -1.0, 0)
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_had_half_made_is_removed(tmp_path: Path) -> None:
    """It may never be made again on this node, and has the size of a checkpoint."""
    place = tmp_path / "one"

    def make(_: int) -> None:
        (tmp_path / ".one.partial").mkdir()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), shared_folder(place, make, place.is_dir, lambda: False, 0.0):
        pass
    remove_unused(tmp_path, -1.0, 0)
    assert list(tmp_path.iterdir()) == []


def test_what_is_in_use_stays(tmp_path: Path) -> None:
    place = tmp_path / "one"
    with use(place, []):
        assert not remove_unused(tmp_path, -1.0, 0) and place.is_dir()
    time.sleep(0.01)
    assert not remove_unused(tmp_path, 60.0, 0) and place.is_dir()


def test_the_end_of_a_long_use_counts(tmp_path: Path) -> None:
    """As of a job that has run for longer than unused folders are kept, and is paused."""
    place = tmp_path / "one"
    with use(place, []):
        os.utime(tmp_path / "one.lock", (1, 1))
    assert not remove_unused(tmp_path, 3600.0, 0) and place.is_dir()
