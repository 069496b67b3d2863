"""Finds the files that match a glob, within bounds: lists each folder once, and limits the number of names, the depth and the time.

As with `glob.glob(…, recursive=True)`: `*`, `?` and `[…]` match within a name, `**` matches any number of folders, including links
to folders, and neither matches names that begin with a dot. A folder that cannot be listed is skipped. So is a folder that contains
itself through a link.
"""

import glob
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import translate
from math import inf
from pathlib import Path
from typing import Final

from .errors import DataError

#: The most names that are read, files that may match, and nested folders.
MOST_NAMES: Final = 1_000_000
MOST_MATCHES: Final = 100_000
MOST_LEVELS: Final = 64
#: Number of names between two checks of the clock.
_NAMES_PER_CHECK: Final = 1_000

_Identity = tuple[int, int]  # of a folder: device and inode
_ANY: Final = "**"


@dataclass(frozen=True)
class _Place:
    """A folder on the walk. Its names are compared with the parts `at` of the pattern; `within` are the folders around it."""

    path: str
    at: frozenset[int]
    within: frozenset[_Identity]


def matching(pattern: str, until: float = inf) -> list[Path]:
    """The regular files that match, sorted.

    Raises `DataError` if there are too many names, or it takes past `until` (`time.monotonic`).
    """
    parts = _parts(pattern)
    fixed = next(index for index, part in enumerate(parts) if glob.has_magic(part))
    walk = _Walk(pattern, parts[fixed:], until)
    return sorted(Path(path) for path in walk.files(os.path.join(*parts[:fixed]) if fixed else ""))  # noqa: PTH118


def _parts(pattern: str) -> list[str]:
    """The pattern's parts. Several `**` in a row become one, which means the same."""
    found: list[str] = []
    for part in Path(pattern).parts:
        if part != _ANY or found[-1:] != [_ANY]:
            found.append(part)
    return found


class _Walk:
    """One walk through the folders. `parts` begins with the first part that is a pattern."""

    def __init__(self, pattern: str, parts: list[str], until: float) -> None:
        self._pattern, self._parts, self._until = pattern, parts, until
        self._expressions = [re.compile(translate(part)) if glob.has_magic(part) else None for part in parts]
        self._names = 0

    def files(self, root: str) -> Iterator[str]:
        """Each regular file that matches, once. Raises `DataError`."""
        found = 0
        places = [_Place(root, self._reached({0}) - {len(self._parts)}, frozenset())]
        while places:
            place = places.pop()
            identity = _identity(place.path)
            if identity is None or (identity in place.within and self._any_depth(place)):
                continue
            if len(place.within) == MOST_LEVELS:
                raise self._refusal(f"goes through more than {MOST_LEVELS} folders below each other")
            within = place.within | {identity}
            for path, is_folder, at in self._below(place):
                if len(self._parts) in at and not is_folder:
                    found += 1
                    if found > MOST_MATCHES:
                        raise self._refusal(f"matches more than {MOST_MATCHES:,} files")
                    yield path
                elif is_folder and (rest := at - {len(self._parts)}):
                    places.append(_Place(path, rest, within))

    def _any_depth(self, place: _Place) -> bool:
        return any(self._parts[index] == _ANY for index in place.at)

    def _below(self, place: _Place) -> Iterator[tuple[str, bool, frozenset[int]]]:
        """The entries of a folder that match so far: the path, whether it is a folder, and the parts to compare its names with."""
        if all(self._expressions[index] is None for index in place.at):  # the folder need not be listed
            for index in place.at:
                path = os.path.join(place.path, self._parts[index])  # noqa: PTH118  (a million of these)
                if os.path.exists(path):  # noqa: PTH110
                    yield path, os.path.isdir(path), self._reached({index + 1})  # noqa: PTH112
            return
        for entry in self._entries(place.path):
            at = self._after(entry.name, place.at)
            if at and (kind := _kind(entry)):
                yield entry.path, kind == "folder", at

    def _after(self, name: str, at: frozenset[int]) -> frozenset[int]:
        hidden = name.startswith(".")
        reached = set()
        for index in at:
            part, expression = self._parts[index], self._expressions[index]
            if part == _ANY:
                reached |= set() if hidden else {index}
            elif expression is None:
                reached |= {index + 1} if name == part else set()
            elif (not hidden or part.startswith(".")) and expression.match(name):
                reached.add(index + 1)
        return self._reached(reached)

    def _reached(self, at: set[int]) -> frozenset[int]:
        """`at` and the parts after a `**`, which may match no folder; a `**` at the end matches files, too."""
        beyond = {index + 1 for index in at if index < len(self._parts) and self._parts[index] == _ANY}
        return frozenset(at | beyond)

    def _entries(self, folder: str) -> Iterator[os.DirEntry[str]]:
        try:
            with os.scandir(folder or ".") as entries:
                for entry in entries:
                    self._count()
                    yield entry
        except OSError:
            return

    def _count(self) -> None:
        self._names += 1
        if self._names > MOST_NAMES:
            raise self._refusal(f"goes through more than {MOST_NAMES:,} names")
        if self._names % _NAMES_PER_CHECK == 0 and time.monotonic() > self._until:
            raise self._refusal(f"goes through more names than could be read in time ({self._names:,})", "too_slow")

    def _refusal(self, why: str, code: str = "too_many_files") -> DataError:
        remedy = "Name a folder nearer to the files, or put the text into fewer files."
        return DataError(code, f"{self._pattern} {why}.", remedy)


def _kind(entry: os.DirEntry[str]) -> str | None:
    try:
        return "folder" if entry.is_dir() else "file" if entry.is_file() else None
    except OSError:  # a link that cannot be followed
        return None


def _identity(folder: str) -> _Identity | None:
    try:
        status = os.stat(folder or ".")  # noqa: PTH116
    except OSError:
        return None
    return status.st_dev, status.st_ino
