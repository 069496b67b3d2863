"""Copies a file from one folder of the storage to another: by a link or by the storage itself where that is possible."""

import tempfile
from typing import Final

from .file_content import FileContent
from .folder import Folder
from .local_folder import LocalFolder
from .uri import is_bucket

#: Files of at most this size are not linked: their writers may write them again.
LINKED_BYTES: Final = 64 << 10
#: Bytes that are in memory at once.
_BLOCK_BYTES: Final = 16 << 20


def copy_file(folder: Folder, name: str, source: Folder, file: str, size: int) -> None:
    """Write `name` durably with the content of another folder's `file`, of `size` bytes. It does not count before a manifest names it.

    A large file may be there only once after it: neither may be written to. Raises OSError.
    """
    if isinstance(folder, LocalFolder):
        if size > LINKED_BYTES and isinstance(source, LocalFolder) and folder.link(name, source, file):
            return
    elif is_bucket(folder.where) and is_bucket(source.where):
        from .s3_folder import BucketFolder  # imports s3fs, which few need

        if isinstance(folder, BucketFolder) and folder.copy_within(name, source, file, size):
            return
    _copy_content(folder, name, source, file, size)


def _copy_content(folder: Folder, name: str, source: Folder, file: str, size: int) -> None:
    with tempfile.TemporaryFile() as spool:
        for start in range(0, size, _BLOCK_BYTES):
            block = bytearray(min(_BLOCK_BYTES, size - start))
            source.read_into(file, start, memoryview(block))
            spool.write(block)
        spool.flush()
        folder.write(name, FileContent(spool.fileno(), size))
