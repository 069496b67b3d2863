"""A job's working copy of its code on this node: unpacked once by the first of its ranks, and shared by all of them.

Copies are below `cache/code/`, one per job, so that a rank that starts again finds what it wrote. Each rank holds a shared lock on its
copy for as long as it lives. A copy without a lock is removed a day after its last use, or when another one needs its room.
"""

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ..code_archive import MANIFEST, Manifest, part_name, unpack
from ..messages import json_codec
from ..storage.open_folder import folder_at
from .program import Code

#: Seconds after its last use for which a copy is kept.
KEPT_S: Final = 86_400.0
#: Seconds to wait for another rank that unpacks.
WAIT_S: Final = 1800.0
#: Seconds between two tries to lock a copy.
_TRY_S: Final = 0.1
#: Free bytes that the file system is to have beyond a copy.
_SPARE_BYTES: Final = 256 << 20


class CodeUnusable(Exception):
    """The code cannot be unpacked on this node."""


@contextmanager
def working_copy(code: Code, job: str, cache: Path, is_to_stop: Callable[[], bool]) -> Iterator[Path]:
    """The folder with the job's code, which stays until the block ends. Raises CodeUnusable, and OSError for the storage's errors."""
    root = cache / "code"
    root.mkdir(parents=True, exist_ok=True)
    copy, path = root / job, root / f"{job}.lock"
    deadline = time.monotonic() + WAIT_S
    while True:
        with _locked(path, fcntl.LOCK_SH) as shared:
            if shared and copy.is_dir():
                os.utime(path)
                yield copy
                return
        with _locked(path, fcntl.LOCK_EX) as alone:
            if alone and not copy.is_dir():
                _unpack(code, copy)
        if not alone:
            if is_to_stop() or time.monotonic() >= deadline:
                raise CodeUnusable(f"another process of this job has not unpacked the code within {WAIT_S:g} s")
            time.sleep(_TRY_S)


def _unpack(code: Code, copy: Path) -> None:
    folder = folder_at(code.archive)
    try:
        manifest: Manifest = json_codec.loads(Manifest, folder.read(MANIFEST))
    except ValueError as error:
        raise CodeUnusable(f"the manifest in {code.archive} cannot be read: {error}") from None
    if manifest.digest != code.digest:
        raise CodeUnusable(f"the manifest in {code.archive} is not that of {code.digest}")
    _make_room(copy.parent, manifest.bytes)
    partial = copy.with_name(f".{copy.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # of a process that died
    try:
        unpack(manifest, lambda number: folder.read(part_name(number)), partial)
        partial.rename(copy)
    except Exception:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _make_room(root: Path, size: int) -> None:
    """Remove copies that no rank uses: those that are old, and the oldest of the others until there is room."""
    locks = {}
    for path in root.glob("*.lock"):
        with contextlib.suppress(FileNotFoundError):
            locks[path] = path.stat().st_mtime
    for path, used in sorted(locks.items(), key=lambda one: one[1]):
        if time.time() - used > KEPT_S or shutil.disk_usage(root).free < size + _SPARE_BYTES:
            _remove(path)


def _remove(lock_path: Path) -> None:
    """Remove a copy and its lock, unless a rank uses it."""
    with _locked(lock_path, fcntl.LOCK_EX) as alone:
        if alone:
            shutil.rmtree(lock_path.with_suffix(""), ignore_errors=True)
            lock_path.unlink(missing_ok=True)


@contextmanager
def _locked(path: Path, kind: int) -> Iterator[bool]:
    """Try to lock a file, which is made if it is missing, for the block. Whether that worked, and the file has not been removed since."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, kind | fcntl.LOCK_NB)
            there = os.fstat(lock).st_ino == path.stat().st_ino
        except (BlockingIOError, FileNotFoundError):
            there = False
        yield there
    finally:
        os.close(lock)
