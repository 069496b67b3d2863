"""Opens files that a spec names only if they are regular files, and never blocks on them.

A FIFO waits for a writer, and a device has no end. The opened file is checked once more, so that replacing the file of that name in
between has no effect. Imports no torch: the API opens the same files as the trainers.
"""

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path
from typing import Final

#: Types of files that are not regular, as text.
_KINDS: Final = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


class UnfitFile(OSError):
    """The path is not a file that can be read to its end: `code` is `not_a_file` or `file_too_large`."""

    def __init__(self, code: str, path: Path, why: str, remedy: str) -> None:
        super().__init__(errno.EINVAL, why, str(path))
        self.code, self.remedy = code, remedy
        self.message = f"{path} is {why}."


def opened(path: Path) -> BufferedReader:
    """The regular file at `path`, opened for reading. Raises `OSError`, and `UnfitFile` for any other kind of file."""
    _refuse_others(path, path.stat().st_mode)  # checked before opening: opening a device may already have an effect
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        _refuse_others(path, os.fstat(handle).st_mode)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read(path: Path, most: int) -> bytes:
    """The content of a regular file of at most `most` bytes. Raises `OSError`, and `UnfitFile` for any other kind or size."""
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        # `read` returns None if no data is available without blocking, as for some files of /proc.
        content = (file.read(most + 1) or b"") if size <= most else b""
    if max(size, len(content)) > most:
        raise UnfitFile("file_too_large", path, f"larger than {most >> 20} MiB", "Name a smaller file.")
    return content


def _refuse_others(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "a special file")
        raise UnfitFile("not_a_file", path, f"{kind}, not a regular file", "Name a regular file.")
