"""`Folder`, the interface of storage: what was published is there whole or not at all. Imports no torch.

`local_folder.py` and `s3_folder.py` implement it; `open_folder.py` opens one by its address.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Folder(ABC):
    """Files side by side, and folders of them. What goes wrong is an `OSError`: `FileNotFoundError` for what is not there,
    `StorageError` where that cannot be known."""

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
        """The names of the folders in this one; none where it does not exist."""

    @abstractmethod
    def files(self) -> dict[str, int]:
        """The sizes of the files in it, by name."""

    @abstractmethod
    def has(self, name: str) -> bool:
        """Whether a file is there."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """All of a file."""

    @abstractmethod
    def read_into(self, name: str, start: int, room: memoryview) -> None:
        """Fill `room` with what lies from byte `start` on. Raises `OSError` where the file ends before."""

    @abstractmethod
    def sha256(self, name: str, size: int) -> str | None:
        """A file's checksum; None where it is not of this size, or not there."""

    @abstractmethod
    def write(self, name: str, content: memoryview) -> None:
        """Write a file that nobody believes in yet; it is durable afterwards. The folder is made where it is missing."""

    @abstractmethod
    def publish(self, name: str, content: bytes) -> None:
        """Write a file that is there whole or not at all, whatever happens meanwhile; it is durable afterwards."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""

    @abstractmethod
    def remove_all(self) -> None:
        """Remove the folder with what is in it, as far as that goes."""

    def each(self, do: Callable[[T], R], things: Iterable[T]) -> list[R]:
        """`do` it with each of the things, several at once where this storage is faster so. Raises what the first that failed raised."""
        return [do(thing) for thing in things]

    @abstractmethod
    def filled(self, last: str) -> contextlib.AbstractContextManager[Path]:
        """A local folder of which the content is this one's after the block, whole or (where `last`, a file, is missing) of no use.

        Raises `FileExistsError` where something is there already.
        """

    @abstractmethod
    def discard_partial(self, last: str) -> None:
        """Remove what somebody who died amid `filled` has left of it. Only where nobody else fills it now."""

    @abstractmethod
    def sweep(self) -> None:
        """Free what writers that died have left below this folder where no verb shows it."""
