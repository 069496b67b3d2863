"""Private folders of temporary files, each locked by the process that uses it. The next process removes those of processes that died.

Needs only the standard library.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path


def locked_folder(root: Path, prefix: str) -> tuple[Path, int]:
    """A new folder of this name and more, and the descriptor by which it is locked while this process lives. Unused ones are removed."""
    remove_unused(root, prefix)
    while True:  # another process may remove one before it is locked; then there is another
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=root))
        with contextlib.suppress(FileNotFoundError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if folder.exists():
                return folder, lock
            os.close(lock)


def remove_unused(root: Path, prefix: str) -> None:
    """Remove the folders of this user whose names begin so, and that no process has locked."""
    for folder in root.glob(f"{prefix}*"):
        _remove_unused(folder)


def _remove_unused(folder: Path) -> None:
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
