"""What checkpoints ask of storage, and local folders, which do it: what was published is there whole or not at all. Imports no torch.

Buckets do it in `bucket.py`.
"""

import contextlib
import errno
import glob
import hashlib
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

from ..atomic_files import sync_folder, write_synced, write_whole
from ..regular_files import opened
from .uri import address, is_bucket, refuse_unreachable

T = TypeVar("T")
R = TypeVar("R")

#: A folder of more is none of checkpoints.
_MOST_ENTRIES: Final = 100_000


class Folder(ABC):
    """Files side by side, and folders of them. What goes wrong is an `OSError`: `FileNotFoundError` for what is not there,
    `errors.Unreachable` where that cannot be known."""

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


def folder_at(given: str | Path) -> Folder:
    """The folder at an address. Raises `Refusal` where its storage cannot be reached from this installation."""
    where = address(given)
    if not is_bucket(where):
        return LocalFolder(where)
    refuse_unreachable(where)
    from .s3_folder import folder_in_bucket  # imports s3fs, which few need

    return folder_in_bucket(where)


class LocalFolder(Folder):
    """A folder of a local or a shared file system. Publishing is a rename."""

    def __init__(self, where: str) -> None:
        super().__init__(where)
        self._path = Path(where)

    def __truediv__(self, name: str) -> "LocalFolder":
        return LocalFolder(str(self._path / name))

    def folders(self) -> list[str]:
        return [entry.name for entry in self._entries() if entry.is_dir()]

    def files(self) -> dict[str, int]:
        return {entry.name: entry.stat().st_size for entry in self._entries() if not entry.is_dir()}

    def has(self, name: str) -> bool:
        return (self._path / name).exists()

    def read(self, name: str) -> bytes:
        with opened(self._path / name) as file:
            return file.read()

    def read_into(self, name: str, start: int, room: memoryview) -> None:
        with opened(self._path / name) as file:
            file.seek(start)
            if file.readinto(room) != room.nbytes:
                raise OSError(f"it ends before byte {start + room.nbytes}")

    def sha256(self, name: str, size: int) -> str | None:
        file = self._path / name
        if file.stat().st_size != size:
            return None
        with file.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()

    def write(self, name: str, content: memoryview) -> None:
        self._path.mkdir(parents=True, exist_ok=True)
        write_synced(self._path / name, [content])
        sync_folder(self._path)

    def publish(self, name: str, content: bytes) -> None:
        self._path.mkdir(parents=True, exist_ok=True)
        write_whole(self._path / name, [content])

    def remove(self, name: str) -> None:
        (self._path / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._path.rmdir()  # as in a bucket, a folder is there as long as something is in it

    def remove_all(self) -> None:
        shutil.rmtree(self._path, ignore_errors=True)

    @contextlib.contextmanager
    def filled(self, last: str) -> Iterator[Path]:  # noqa: ARG002  (a rename needs no last file)
        if self._path.exists() and (not self._path.is_dir() or any(self._path.iterdir())):
            raise FileExistsError(f"{self} is not an empty folder; name a new one.")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        partial = self._path.with_name(f".{self.name}.{os.getpid()}.partial")
        try:
            partial.mkdir()
            yield partial
            partial.replace(self._path)
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def discard_partial(self, last: str) -> None:  # noqa: ARG002  (a rename needs no last file)
        for left in self._path.parent.glob(f".{glob.escape(self.name)}.*.partial"):
            shutil.rmtree(left, ignore_errors=True)

    def sweep(self) -> None:
        """Everything that is written here shows."""

    def _entries(self) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self._path) as entries:
                found = list(islice(entries, _MOST_ENTRIES + 1))
        except (FileNotFoundError, NotADirectoryError):
            return []
        if len(found) > _MOST_ENTRIES:
            raise OSError(errno.EFBIG, f"more than {_MOST_ENTRIES:,} entries", self.where)
        return found
