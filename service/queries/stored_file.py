"""Sends the content of one stored file in blocks: no transaction is open meanwhile, and at most one block of it is in memory.

A link in storage is never followed: a program may have put it there, and what it names is no file of the job.
"""

import errno
import logging
import os
import stat
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...workers.storage.folder import Folder
from ...workers.storage.open_folder import shared_folder_at
from ...workers.storage.uri import is_bucket
from ..errors import ArtifactStorageFailed
from ..model_errors import CheckpointStorageFailed
from .storage_reads import StorageReads

log = logging.getLogger(__name__)

#: Bytes that are read at once.
BLOCK_BYTES: Final = 1 << 20
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(frozen=True)
class StoredFile:
    """A file `name` of `bytes` bytes in the folder at the address `folder`. `failed`: what is raised if it cannot be read."""

    folder: str
    name: str
    bytes: int
    sha256: str
    failed: type[ArtifactStorageFailed] | type[CheckpointStorageFailed]


async def blocks(reads: StorageReads, file: StoredFile, start: int, end: int) -> AsyncIterator[bytes]:
    """The bytes from `start` to before `end`. The first block is read at once: raises `file.failed`."""
    first = await _block(reads, file, start, end)
    return _following(reads, file, first, start, end)


async def _following(reads: StorageReads, file: StoredFile, block: bytes, start: int, end: int) -> AsyncIterator[bytes]:
    while block:
        yield block
        start += len(block)
        block = await _block(reads, file, start, end)


async def _block(reads: StorageReads, file: StoredFile, start: int, end: int) -> bytes:
    room = bytearray(max(0, min(BLOCK_BYTES, end - start)))
    if not room:
        return b""
    try:
        await reads.do(lambda: read_into(shared_folder_at(file.folder), file.name, start, memoryview(room)))
    except OSError as error:
        log.warning("a stored file in %s cannot be read: %s", file.folder, error)
        raise file.failed(
            f"The file cannot be read from storage: {error.strerror or type(error).__name__}.",
            field="name",
            remedy="Try again. Operators: the API must be able to read the storage (SHARDYARD_STORAGE).",
        ) from None
    return bytes(room)


def read_into(folder: Folder, name: str, start: int, room: memoryview) -> None:
    """As `Folder.read_into`. In a file system, the file must be a regular one, and neither it nor a folder of its job a link.

    Raises OSError.
    """
    if is_bucket(folder.where):
        folder.read_into(name, start, room)
        return
    handle = _opened_below(Path(folder.where), name)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        while room:
            got = os.preadv(handle, [room], start)
            if got == 0:
                raise OSError(errno.EIO, f"it ends before byte {start + len(room)}")
            start, room = start + got, room[got:]
    finally:
        os.close(handle)


def _opened_below(folder: Path, name: str) -> int:
    """A descriptor of the file. The job's folder, which is above `folder`, and all below it are opened one by one: none may be a link."""
    parts = [folder.parent.name, folder.name, *name.split("/")]
    place = os.open(folder.parent.parent, _FOLDER)
    try:
        for part in parts[:-1]:
            below = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=place)
            os.close(place)
            place = below
        return os.open(
            parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY, dir_fd=place
        )
    finally:
        os.close(place)
