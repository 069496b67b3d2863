"""A disk of which some files cannot be read."""

import errno
import os
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest


class BadDisk:
    """Answers with an error to each opening of `files`, paths or patterns of them.

    With EIO, as to reads of a bad sector, or of a mount without a server whose names are cached; or with another `number`.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files: set[str] = set()
        self.number = errno.EIO
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
        if self.tries != 0 and any(fnmatchcase(path, file) for file in self.files):
            self.tries -= 1
            raise OSError(self.number, os.strerror(self.number), path)
