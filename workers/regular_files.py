"""Files that a spec names are opened only where they are regular files, and never waited for.

A FIFO waits for a writer, and a device has no end. What was opened is looked at, so that a name that comes to stand for another file
in between changes nothing. Imports no torch: the API looks at the same files as the trainers.
"""

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path
from typing import Final

#: What a file may be that is no regular one, in words.
_KINDS: Final = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


class UnfitFile(OSError):
    """A name that stands for no file that can be read to its end: `code` is `not_a_file` or `file_too_large`."""

    def __init__(self, code: str, path: Path, why: str, remedy: str) -> None:
        super().__init__(errno.EINVAL, why, str(path))
        self.code, self.remedy = code, remedy
        self.message = f"{path} is {why}."


def opened(path: Path) -> BufferedReader:
    """The regular file at `path`, for reading. Raises `OSError`, of any other kind of file `UnfitFile`."""
    _refuse_others(path, path.stat().st_mode)  # before it is opened: to open a device may already do something
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        _refuse_others(path, os.fstat(handle).st_mode)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read(path: Path, most: int) -> bytes:
    """The content of a regular file of at most `most` bytes. Raises `OSError`, of any other `UnfitFile`."""
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        # None: nothing is to be had without waiting, as from some files of /proc.
        content = (file.read(most + 1) or b"") if size <= most else b""
    if max(size, len(content)) > most:
        raise UnfitFile("file_too_large", path, f"larger than {most >> 20} MiB", "Name the file that is meant.")
    return content


def _refuse_others(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "a special file")
        raise UnfitFile("not_a_file", path, f"{kind}, not a regular file", "Name a regular file.")
