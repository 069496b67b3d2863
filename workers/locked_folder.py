"""Private folders for temporary files, each locked while it is in use. Those of processes that were killed are removed by the next one.

Needs only the standard library. A folder's name has the user's number after the prefix. Folders are in `root`; None: in that of
temporary files.
"""

import contextlib
import fcntl
import os
import platform
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def of_this_host(prefix: str) -> str:
    """A prefix of this machine alone. Others may see the same root, as on NFS, which keeps the lock of a folder on the machine.

    It is that of the running kernel: all containers of the machine have it, and their locks.
    """
    try:
        name = Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:  # a system without /proc
        name = platform.node()
    return f"{prefix}{zlib.crc32(name.encode()):08x}-"


@contextmanager
def locked_folder(prefix: str, root: Path | None = None) -> Iterator[Path]:
    """A new folder, which is removed when the block ends. Unused ones of this user and prefix are removed before. Raises OSError."""
    folder, lock = open_locked(prefix, root)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def open_locked(prefix: str, root: Path | None = None) -> tuple[Path, int]:
    """A new folder, and the descriptor by which it is locked until that is closed, or this process ends. Unused ones are removed before.

    Raises OSError.
    """
    remove_unused(prefix, root)
    while True:  # another process may remove one before it is locked; then there is another
        folder = Path(tempfile.mkdtemp(prefix=_named(prefix), dir=root))
        with contextlib.suppress(FileNotFoundError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if folder.exists():
                return folder, lock
            os.close(lock)


def remove_unused(prefix: str, root: Path | None = None) -> None:
    """Remove the folders of this user and prefix that no process has locked."""
    for folder in (root or Path(tempfile.gettempdir())).glob(f"{_named(prefix)}*"):
        _remove_unused(folder)


def _named(prefix: str) -> str:
    return f"{prefix}{os.getuid()}-"


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
