"""A folder that is a prefix of an S3 bucket: an object exists whole or not at all, so nothing is ever renamed.

Large files are uploaded in parts. The upload of a writer that died never becomes a file, but its parts take space until `sweep` aborts
it. Every listing is of one folder.
"""

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from . import s3_bucket
from .file_content import FileContent
from .folder import Folder
from .s3_bucket import Bucket, ahead, open_bucket
from .upload_folder import upload_folder
from .uri import BUCKET

T = TypeVar("T")
R = TypeVar("R")


def folder_in_bucket(where: str) -> Folder:
    """The folder at `s3://bucket/prefix`. Sends no request yet."""
    return BucketFolder(where, open_bucket(where.removeprefix(BUCKET).partition("/")[0]))


class BucketFolder(Folder):
    """A prefix of a bucket."""

    def __init__(self, where: str, bucket: Bucket) -> None:
        super().__init__(where)
        self._bucket = bucket
        self._prefix = where.removeprefix(BUCKET).partition("/")[2]

    def __truediv__(self, name: str) -> "BucketFolder":
        return BucketFolder(f"{self.where}/{name}", self._bucket)

    def folders(self) -> list[str]:
        return [name for name, entry in self._listed().items() if entry["type"] == "directory"]

    def files(self) -> dict[str, int]:
        return {name: entry["size"] for name, entry in self._listed().items() if entry["type"] == "file"}

    def has(self, name: str) -> bool:
        try:
            self.head(name)
        except FileNotFoundError:
            return False
        return True

    def head(self, name: str) -> dict[str, Any]:
        """What S3 knows of an object beside its content."""
        found: dict[str, Any] = self._bucket.call("head_object", Key=self._key(name))
        return found

    def read(self, name: str) -> bytes:
        return self._bucket.get(self._key(name))

    def read_into(self, name: str, start: int, room: memoryview) -> None:
        for first in range(0, room.nbytes, s3_bucket.BLOCK_BYTES):
            part = room[first : first + s3_bucket.BLOCK_BYTES]
            content = self._bucket.get(self._key(name), start + first, start + first + part.nbytes)
            if len(content) != part.nbytes:
                raise OSError(f"it ends before byte {start + room.nbytes}")
            part[:] = content

    def sha256(self, name: str, size: int, beat: Callable[[], None] = lambda: None) -> str | None:
        if self.head(name)["ContentLength"] != size:
            return None
        digest, read = hashlib.sha256(), 0
        firsts = range(0, size, s3_bucket.BLOCK_BYTES)
        for block in ahead(
            lambda first: self._bucket.get(self._key(name), first, min(first + s3_bucket.BLOCK_BYTES, size)), firsts
        ):
            digest.update(block)
            read += len(block)
            beat()
        return digest.hexdigest() if read == size else None

    def write(self, name: str, content: memoryview | FileContent) -> None:
        _send(self._bucket, self._key(name), content, lambda: None)

    def copy_within(self, name: str, source: Folder, file: str, size: int) -> bool:
        """Have S3 copy another folder's file. False if that is in another bucket."""
        if not isinstance(source, BucketFolder) or source._bucket.name != self._bucket.name:
            return False
        self._bucket.copy(self._key(name), source._key(file), size)
        return True

    def publish(
        self,
        name: str,
        content: bytes | memoryview,
        *,
        many_writers: bool = False,  # noqa: ARG002  (a PUT is atomic)
        replace: bool = True,
    ) -> None:
        """Publish a file. A PUT without an answer may have arrived: if the file has this content, it counts as published."""
        if not replace:
            self._bucket.put_first(self._key(name), bytes(content))
            return
        try:
            self.write(name, memoryview(content))
        except OSError:
            if len(content) > s3_bucket.BLOCK_BYTES or not _has_arrived(self, name, bytes(content)):
                raise

    def remove(self, name: str) -> None:
        self._bucket.call("delete_object", Key=self._key(name))

    def remove_all(self) -> None:
        with contextlib.suppress(OSError):
            self.each(self.remove, self.files())

    def each(self, do: Callable[[T], R], things: Iterable[T]) -> list[R]:
        return list(ahead(do, things))

    @contextlib.contextmanager
    def filled(self, last: str, beat: Callable[[], None] = lambda: None) -> Iterator[Path]:
        if self._listed():
            raise FileExistsError(f"{self} is not an empty folder; name a new one.")
        with upload_folder() as folder:
            yield folder
            for file in sorted(folder.iterdir(), key=lambda file: file.name == last):
                _send(self._bucket, self._key(file.name), _mapped(file), beat)

    def discard(self, last: str, *, complete: bool = False) -> None:
        if complete:
            self.remove(last)
        if not self.has(last):
            self.remove_all()
            with contextlib.suppress(OSError):  # such as of credentials that may not list uploads
                self.sweep()

    def sweep(self, has_dead_writers: Callable[[str], bool] = lambda _: True) -> None:
        prefix = self._key("")
        for uploads in self._bucket.uploads(prefix):
            for upload in uploads:
                if has_dead_writers(upload["Key"].removeprefix(prefix).partition("/")[0]):
                    self._bucket.abort(upload["Key"], upload["UploadId"])

    def _listed(self) -> dict[str, Any]:
        """The entries of this folder, by name. What is in its folders is not listed."""
        names = ((entry["name"].rpartition("/")[2], entry) for entry in self._bucket.listed(self._prefix))
        return {name: entry for name, entry in names if name}  # the empty one is the folder itself

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}".removeprefix("/")


def _send(bucket: Bucket, key: str, content: memoryview | FileContent, beat: Callable[[], None]) -> None:
    """Write an object, in parts if it is large. `beat` is called for each."""
    if content.nbytes > s3_bucket.BLOCK_BYTES:
        bucket.upload(key, content, beat)
    else:
        bucket.put(key, bytes(content))
        beat()


def _has_arrived(folder: Folder, name: str, content: bytes) -> bool:
    with contextlib.suppress(OSError):
        return folder.read(name) == content
    return False


def _mapped(file: Path) -> memoryview:
    import mmap

    with file.open("rb") as opened:
        if file.stat().st_size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
