"""A folder with a limit on the bytes of its files, as on a full disk or under a quota."""

import errno
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from shardyard.workers import atomic_files
from shardyard.workers.storage import local_folder


class FullDisk:
    """Files below `root` have at most `size` bytes together: a write that exceeds them leaves a part of its file, and raises ENOSPC."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path, size: int) -> None:
        self._root, self.size = root, size
        usual = atomic_files.write_synced

        def write_synced(path: Path, blocks: Iterable[Any]) -> None:
            usual(path, blocks)
            over = self.used() - self.size
            if path.is_relative_to(root) and over > 0:
                os.truncate(path, max(0, path.stat().st_size - over))
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

        for module in (atomic_files, local_folder):
            monkeypatch.setattr(module, "write_synced", write_synced)

    def used(self) -> int:
        return sum(file.stat().st_size for file in self._root.rglob("*") if file.is_file())
