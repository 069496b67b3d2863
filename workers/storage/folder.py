"""`Folder`, the interface of storage: a published file exists whole or not at all. Imports no torch.

`local_folder.py` and `s3_folder.py` implement it; `open_folder.py` opens one by its address.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from .file_content import FileContent

T = TypeVar("T")
R = TypeVar("R")


class Folder(ABC):
    """Files, and folders of them. All errors are `OSError`s: `FileNotFoundError` for what does not exist, `StorageError` if the storage
    could not be read."""

    def __init__(self, where: str) -> None:
        self.where = where

    @property
    def name(self) -> str:
        return self.where.rpartition("/")[2]

    def __str__(self) -> str:
        return self.where

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Folder) and self.where == other.where

    def __hash__(self) -> int:
        return hash(self.where)

    @abstractmethod
    def __truediv__(self, name: str) -> "Folder":
        """The folder `name` in this one; neither needs to exist."""

    @abstractmethod
    def folders(self) -> list[str]:
        """The names of the folders in this one; empty if it does not exist."""

    @abstractmethod
    def files(self) -> dict[str, int]:
        """The sizes of the files in it, by name."""

    @abstractmethod
    def has(self, name: str) -> bool:
        """Whether a file exists."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """The content of a file."""

    @abstractmethod
    def read_into(self, name: str, start: int, room: memoryview) -> None:
        """Fill `room` with the file's bytes from `start` on. Raises `OSError` if the file ends before."""

    @abstractmethod
    def sha256(self, name: str, size: int, beat: Callable[[], None] = lambda: None) -> str | None:
        """A file's checksum; None if it has another size, or does not exist. `beat` is called for each block that is read."""

    @abstractmethod
    def write(self, name: str, content: memoryview | FileContent) -> None:
        """Write a file durably. It does not count before a manifest names it, so a crash may leave it partial. Makes a missing folder."""

    @abstractmethod
    def publish(
        self, name: str, content: bytes | memoryview, *, many_writers: bool = False, replace: bool = True
    ) -> None:
        """Write a file atomically and durably: after a crash it exists whole or not at all.

        Only with `many_writers` may several write it at the same time; the last one wins. Without `replace` the first one wins: read the
        file to see what it has. On file systems without hard links, and in buckets whose server ignores or refuses `If-None-Match`, one
        that begins before another has ended may still replace its file.
        """

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""

    @abstractmethod
    def remove_all(self) -> None:
        """Remove the folder and its content. Errors are ignored."""

    def each(self, do: Callable[[T], R], things: Iterable[T]) -> list[R]:
        """The results of `do` for each thing, several at once if that makes this storage faster. Raises the first call's exception."""
        return [do(thing) for thing in things]

    @abstractmethod
    def filled(self, last: str, beat: Callable[[], None] = lambda: None) -> contextlib.AbstractContextManager[Path]:
        """A local folder whose content this folder has after the block. If `last`, a file, is missing, the content is incomplete.

        `beat` is called for each file or part that is synced or sent after the block.
        Raises `FileExistsError` if this folder is not empty. The content survives a power loss.
        """

    @abstractmethod
    def discard(self, last: str, *, complete: bool = False) -> None:
        """Remove what a process that died within `filled` has left; with `complete` also what one has filled.

        If this process dies meanwhile, the content is incomplete. Call it only if no other process fills this folder now.
        """

    @abstractmethod
    def sweep(self, has_dead_writers: Callable[[str], bool] = lambda _: True) -> None:
        """Free space below this folder that dead writers left and no other method shows, such as unfinished uploads.

        `has_dead_writers(name)`: whether no writer of the folder or file `name` in this one is alive.
        """
