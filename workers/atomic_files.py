"""Local files that are there whole or not at all, and outlive a loss of power once they were written."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def write_whole(path: Path, blocks: Iterable[Any]) -> None:
    """Write `path` so that it is there as a whole or not at all. One writer at a time: the temporary name is fixed."""
    partial = path.with_name(path.name + ".partial")
    try:
        write_synced(partial, blocks)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    sync_folder(path.parent)


def write_synced(path: Path, blocks: Iterable[Any]) -> None:
    """Write a file through to the disk; its name may still be lost."""
    with path.open("wb") as file:
        file.writelines(blocks)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Let the names in a folder outlive a loss of power."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
