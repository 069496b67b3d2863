"""The content of an open file, read as it is written to storage. It is never mapped into memory.

The file may be a program's, which may truncate it meanwhile: mapped memory would then end this process by SIGBUS. Any thread may read.
"""

import errno
import os
from collections.abc import Iterator
from typing import Final

#: Bytes that are read at once.
BLOCK_BYTES: Final = 16 << 20


class FileContent:
    """The first `nbytes` bytes of a file. Reading raises OSError if the file has become shorter."""

    def __init__(self, handle: int, nbytes: int) -> None:
        self._handle, self.nbytes = handle, nbytes

    def __getitem__(self, part: slice) -> bytes:
        at, end, _ = part.indices(self.nbytes)
        blocks = []
        while at < end:
            block = os.pread(self._handle, min(BLOCK_BYTES, end - at), at)
            if not block:
                raise OSError(errno.EIO, "it became shorter while it was read")
            blocks.append(block)
            at += len(block)
        return b"".join(blocks)

    def __bytes__(self) -> bytes:
        return self[:]

    def __iter__(self) -> Iterator[bytes]:
        """In blocks."""
        for at in range(0, self.nbytes, BLOCK_BYTES):
            yield self[at : at + BLOCK_BYTES]
