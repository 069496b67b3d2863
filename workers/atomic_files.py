"""Writes local files atomically: a file is there whole or not at all, and survives a power loss once it is written."""

import errno
import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

#: Errors of a file system that has no hard links.
NO_LINKS: Final = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)


def write_whole(path: Path, blocks: Iterable[Any], *, many_writers: bool = False) -> None:
    """Write `path` so that it is there whole or not at all.

    Only one writer at a time may write a path, because the temporary name is fixed: what a dead one left is overwritten. With
    `many_writers` the last one wins, and what a dead one left stays in the folder.
    """
    partial = path.with_name(f"{path.name}{'.' + secrets.token_hex(8) if many_writers else ''}.partial")
    try:
        write_synced(partial, blocks)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    sync_folder(path.parent)


def write_first(path: Path, blocks: Iterable[Any]) -> None:
    """Write `path` as `write_whole` does, unless it is there: of several writers the first one wins.

    On a file system without hard links one that begins before another has ended may still replace its file.
    """
    partial = path.with_name(f"{path.name}.{secrets.token_hex(8)}.partial")
    try:
        write_synced(partial, blocks)
        try:
            os.link(partial, path)
        except FileExistsError:
            return
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            if not path.exists():
                partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    sync_folder(path.parent)


def write_synced(path: Path, blocks: Iterable[Any]) -> None:
    """Write a file and sync it to the disk. A power loss may still lose its name."""
    with path.open("wb") as file:
        file.writelines(blocks)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Sync a folder, so that the names in it survive a power loss."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
