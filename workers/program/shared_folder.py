"""Folders that the ranks of a node share: made by the first rank that needs one, kept while a rank uses it, removed when unused.

Each has a lock file beside it. A rank that makes the folder holds an exclusive lock, and one that uses it a shared lock. The kernel drops
the locks of a process that dies, so that another rank goes on. The lock file's time is that of the last use: of its end, or where
that process was killed of its start.
"""

import contextlib
import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

#: Seconds between two tries to lock a folder.
TRY_S: Final = 0.1


class FolderUnavailable(Exception):
    """Another process has not made the folder in time."""


class EndRequested(Exception):
    """The rank is to end, and no longer waits for its folder."""


@contextmanager
def shared_folder(
    place: Path,
    make: Callable[[int], None],
    is_made: Callable[[], bool],
    is_to_stop: Callable[[], bool],
    wait_s: float,
) -> Iterator[None]:
    """Keep the folder `place` until the block ends. Raises FolderUnavailable, EndRequested, and what `make` raises.

    `make` is called if it is not there, with the descriptor of the exclusive lock. What it may leave half made is named `.NAME.partial`.
    `wait_s`: seconds to wait for another process's lock.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    path = place.with_name(f"{place.name}.lock")
    deadline = time.monotonic() + wait_s
    while True:
        with locked(path, fcntl.LOCK_SH) as shared:
            if shared is not None and is_made():
                os.utime(path)
                del make  # and what it holds: the block may last as long as a program
                try:
                    yield
                finally:
                    with contextlib.suppress(OSError):
                        os.utime(path)  # the use may have lasted longer than a folder is kept
                return
        with locked(path, fcntl.LOCK_EX) as alone:
            if alone is not None and not is_made():
                make(alone)
        if alone is None:
            if is_to_stop():
                raise EndRequested
            if time.monotonic() >= deadline:
                raise FolderUnavailable(f"another process has not made {place} within {wait_s:g} s")
            time.sleep(TRY_S)


def reserve(lock: int, size: int) -> None:
    """Note in a lock file how many bytes its folder has, or will have. `lock`: the descriptor of the exclusive lock."""
    os.pwrite(lock, f"{size:020d}".encode(), 0)


def reserved(root: Path) -> int:
    """The bytes that are noted for all folders below `root`."""
    return sum(_noted(path) for path in root.glob("*.lock"))


def remove_unused(root: Path, kept_s: float, wanted_bytes: int, most_bytes: int | None = None) -> bool:
    """Remove folders that no rank uses: those unused for `kept_s`, and the oldest of the others until there is room.

    `most_bytes`: what all folders may have together, as `reserve` has noted it. Returns whether there was one.
    """
    locks = {}
    for path in root.glob("*.lock"):
        with contextlib.suppress(FileNotFoundError):
            locks[path] = path.stat().st_mtime
    removed, held = False, 0 if most_bytes is None else reserved(root)
    for path, used in sorted(locks.items(), key=lambda one: one[1]):
        too_much = most_bytes is not None and held > most_bytes
        if time.time() - used > kept_s or too_much or shutil.disk_usage(root).free < wanted_bytes:
            size = _noted(path)
            removed |= _remove(path)
            held -= 0 if path.exists() else size
    return removed


def _noted(path: Path) -> int:
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text() or 0)
    return 0


def _remove(lock_path: Path) -> bool:
    """Remove a folder and its lock, unless a rank uses it. Whether there was a folder to remove."""
    folder = lock_path.with_suffix("")
    with locked(lock_path, fcntl.LOCK_EX) as alone:
        if alone is None:
            return False
        there = folder.exists()
        if there:
            folder.rename(folder.with_name(f".{folder.name}.{secrets.token_hex(8)}.removed"))  # whole, or not at all
        for removed in folder.parent.glob(f".{folder.name}.*.removed"):  # also of processes that died
            remove_tree(removed)
        remove_tree(folder.with_name(f".{folder.name}.partial"))
        lock_path.unlink(missing_ok=True)
        return there


def remove_tree(path: Path) -> None:
    """Remove a folder whose folders may be read-only. Errors are ignored."""
    with contextlib.suppress(OSError):
        for folder, _, _ in os.walk(path):
            Path(folder).chmod(0o700)
    shutil.rmtree(path, ignore_errors=True)


@contextmanager
def locked(path: Path, kind: int) -> Iterator[int | None]:
    """Try to lock a file, which is made if it is missing, for the block. Its descriptor; None if that failed, or the file was removed."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, kind | fcntl.LOCK_NB)
            there = os.fstat(lock).st_ino == path.stat().st_ino
        except (BlockingIOError, FileNotFoundError):
            there = False
        yield lock if there else None
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_UN)  # also where another process has inherited it
        os.close(lock)
