"""A private folder for temporary files, locked while it is in use. What a killed process has left is removed by the next one."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked_folder(prefix: str, root: Path | None = None) -> Iterator[Path]:
    """A new folder in `root`, which is removed when the block ends. Unused ones of this user and prefix are removed before.

    `root`: None for that of temporary files. Raises OSError.
    """
    root = root or Path(tempfile.gettempdir())
    prefix = f"{prefix}{os.getuid()}-"
    for left in root.glob(f"{prefix}*"):
        _remove_unused(left)
    folder, lock = _locked(root, prefix)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _locked(root: Path, prefix: str) -> tuple[Path, int]:
    """A new folder, and the descriptor by which it is locked. Another process may remove one before it is locked; then there is another."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=root))
        with contextlib.suppress(FileNotFoundError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if folder.exists():
                return folder, lock
            os.close(lock)


def _remove_unused(folder: Path) -> None:
    """Remove a folder of this user that no process has locked."""
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if os.fstat(lock).st_uid == os.getuid():
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        return
    finally:
        os.close(lock)
