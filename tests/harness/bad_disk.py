"""A disk of which some files cannot be read."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest


class BadDisk:
    """Answers with EIO to each read of the content of `files`, as a bad sector does, or a mount without a server whose names are cached."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files: set[str] = set()
        self.tries = -1  # failures that are left; -1: all
        usual, usual_open = os.open, Path.open

        def opened(path: Any, *how: Any, **more: Any) -> int:
            self._refuse(str(path))
            return usual(path, *how, **more)

        def path_opened(path: Path, *how: Any, **more: Any) -> Any:
            self._refuse(str(path))
            return usual_open(path, *how, **more)

        monkeypatch.setattr(os, "open", opened)
        monkeypatch.setattr(Path, "open", path_opened)

    def _refuse(self, path: str) -> None:
        if path in self.files and self.tries != 0:
            self.tries -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
