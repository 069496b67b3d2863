"""A folder of a local or a shared file system. Publishing is a rename. Imports no torch."""

import contextlib
import errno
import glob
import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Container, Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from ..atomic_files import NO_LINKS, sync_folder, write_first, write_synced, write_whole
from ..regular_files import opened
from .errors import StorageDenied, StorageError, StorageUnreachable, StorageUnreadable
from .file_content import FileContent
from .folder import Folder

_MISSING: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
#: Errors of a link between file systems, on one without links, to a file of another user, and of one link too many.
_NOT_LINKED: Final = (*NO_LINKS, errno.EXDEV, errno.EMLINK, errno.EACCES)
#: A folder with more entries is not one of checkpoints.
_MOST_ENTRIES: Final = 100_000

_BLOCK_BYTES: Final = 1 << 20

#: Errors that say something of a name: nothing is there, or nothing can be.
_OF_NAME: Final = (*_MISSING, errno.ENAMETOOLONG, errno.EINVAL)
#: Errors that say something of a file's content: it is not there, or it is no file.
_OF_CONTENT: Final = (*_OF_NAME, errno.EISDIR)
_REFUSED: Final = (errno.EACCES, errno.EPERM)


@contextlib.contextmanager
def _reading(known: Container[int] = _OF_CONTENT) -> Iterator[None]:
    """Raise StorageError for errors that say nothing of what is read, such as ESTALE of a shared file system, or EMFILE.

    `known`: errors that do.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None or error.errno in known:
            raise
        raise _kind(error.errno)(error.errno, error.strerror, error.filename) from error


def _kind(number: int) -> type[StorageError]:
    if number in _REFUSED:
        return StorageDenied
    return StorageUnreadable if number == errno.EIO else StorageUnreachable


class LocalFolder(Folder):
    """A folder of a local or a shared file system. Publishing is a rename."""

    def __init__(self, where: str) -> None:
        super().__init__(where)
        self._path = Path(where)

    def __truediv__(self, name: str) -> "LocalFolder":
        return LocalFolder(str(self._path / name))

    def folders(self) -> list[str]:
        with _reading(_OF_NAME):
            return [entry.name for entry in self._entries() if entry.is_dir()]

    def files(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for entry in self._entries():
            with (
                contextlib.suppress(FileNotFoundError),
                _reading(_OF_NAME),
            ):  # another rank has removed or renamed it since
                if not entry.is_dir():
                    found[entry.name] = entry.stat().st_size
        return found

    def has(self, name: str) -> bool:
        try:
            with _reading(_OF_NAME):
                (self._path / name).stat()
        except (
            OSError
        ) as error:  # `Path.exists` of Python 3.14 says no to every error, and what is not there is removed
            if error.errno not in _MISSING:
                raise
            return False
        return True

    def read(self, name: str) -> bytes:
        with _reading(), opened(self._path / name) as file:
            return file.read()

    def read_into(self, name: str, start: int, room: memoryview) -> None:
        with _reading(), opened(self._path / name) as file:
            file.seek(start)
            if file.readinto(room) != room.nbytes:
                raise OSError(f"it ends before byte {start + room.nbytes}")

    def sha256(self, name: str, size: int, beat: Callable[[], None] = lambda: None) -> str | None:
        digest, room = hashlib.sha256(), memoryview(bytearray(_BLOCK_BYTES))
        with _reading(), opened(self._path / name) as file:
            if os.fstat(file.fileno()).st_size != size:
                return None
            while read := file.readinto(room):
                digest.update(room[:read])
                beat()
        return digest.hexdigest()

    def write(self, name: str, content: memoryview | FileContent) -> None:
        self._path.mkdir(parents=True, exist_ok=True)
        write_synced(self._path / name, content if isinstance(content, FileContent) else [content])
        sync_folder(self._path)

    def link(self, name: str, source: "LocalFolder", file: str) -> bool:
        """Give another folder's file a second name here, durably: its content, too, which its writer may not have synced.

        False if the file system does not do it.
        """
        self._path.mkdir(parents=True, exist_ok=True)
        with opened(source._path / file) as content:
            os.fsync(content.fileno())
        try:
            (self._path / name).hardlink_to(source._path / file)
        except OSError as error:
            if error.errno not in _NOT_LINKED:
                raise
            return False
        sync_folder(self._path)
        return True

    def publish(
        self, name: str, content: bytes | memoryview, *, many_writers: bool = False, replace: bool = True
    ) -> None:
        self._path.mkdir(parents=True, exist_ok=True)
        if replace:
            write_whole(self._path / name, [content], many_writers=many_writers)
        else:
            write_first(self._path / name, [content])

    def remove(self, name: str) -> None:
        (self._path / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._path.rmdir()  # as in a bucket, an empty folder does not exist

    def remove_all(self) -> None:
        shutil.rmtree(self._path, ignore_errors=True)

    @contextlib.contextmanager
    def filled(
        self,
        last: str,  # noqa: ARG002  (a rename needs no last file)
        beat: Callable[[], None] = lambda: None,
    ) -> Iterator[Path]:
        if self._path.exists() and (not self._path.is_dir() or any(self._path.iterdir())):
            raise FileExistsError(f"{self} is not an empty folder; name a new one.")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        partial = _partial_of(self._path)
        partial.mkdir()
        try:
            yield partial
            _sync_files(partial, beat)
            partial.replace(self._path)
            sync_folder(self._path.parent)
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def discard(
        self,
        last: str,  # noqa: ARG002  (a rename needs no last file)
        *,
        complete: bool = False,
    ) -> None:
        if complete and self._path.is_dir() and not self._path.is_symlink():
            self._path.replace(_partial_of(self._path))
            sync_folder(self._path.parent)
        for left in self._path.parent.glob(f".{glob.escape(self.name)}.*.partial"):
            shutil.rmtree(left, ignore_errors=True)

    def sweep(self, has_dead_writers: Callable[[str], bool] = lambda _: True) -> None:
        """Does nothing: all files that writers left are visible."""

    def _entries(self) -> list[os.DirEntry[str]]:
        try:
            with _reading(_OF_NAME), os.scandir(self._path) as entries:
                found = list(islice(entries, _MOST_ENTRIES + 1))
        except (FileNotFoundError, NotADirectoryError):
            return []
        if len(found) > _MOST_ENTRIES:
            raise OSError(errno.EFBIG, f"more than {_MOST_ENTRIES:,} entries", self.where)
        return found


def _partial_of(path: Path) -> Path:
    """A new name beside `path` for a folder that is incomplete."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")


def _sync_files(folder: Path, beat: Callable[[], None]) -> None:
    """Sync a folder's files, and their names."""
    for file in folder.iterdir():
        with file.open("rb") as content:
            os.fsync(content.fileno())
        beat()
    sync_folder(folder)
