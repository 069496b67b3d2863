"""A folder that is a prefix of an S3 bucket, by s3fs: what is put is there whole or not at all, so nothing is ever renamed.

Every call ends: connecting, and each wait for bytes, has a time-out, and a call is tried again a bounded number of times. Large files go in
parts; the upload of a writer that died never becomes a file, but its parts take room until `sweep` ends it. Nothing is listed that is not
one folder. What a bucket says is never taken for damage when it says nothing about the file.
"""

import contextlib
import hashlib
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import aiohttp
import s3fs
from botocore.exceptions import BotoCoreError, NoCredentialsError, PartialCredentialsError

from .errors import StorageDenied, StorageUnreachable
from .folder import Folder
from .uri import BUCKET

T = TypeVar("T")
R = TypeVar("R")

#: So many requests of one rank at once, so much of a file in each: what a rank holds in memory beside its files is at most their product.
AT_ONCE: Final = 8
BLOCK_BYTES: Final = 16 << 20
#: S3 takes no upload of more parts.
MOST_PARTS: Final = 10_000
CONNECT_S: Final = 10
READ_S: Final = 30
#: Tries of a request by botocore, which waits longer each time; and, around that, by s3fs, which also begins a broken content anew.
TRIES: Final = 2
READ_TRIES: Final = 2

#: What botocore and aiohttp raise beside `OSError`.
_FAULTS: Final = (BotoCoreError, aiohttp.ClientError, TimeoutError)
_NOT_ALLOWED: Final = (PermissionError, NoCredentialsError, PartialCredentialsError)


def folder_in_bucket(where: str) -> Folder:
    """The folder at `s3://bucket/prefix`. Nothing is asked yet."""
    config = {
        "connect_timeout": CONNECT_S,
        "read_timeout": READ_S,
        "max_pool_connections": AT_ONCE,
        "retries": {"mode": "standard", "total_max_attempts": TRIES},
        # Not every S3-compatible server knows the newer checksums; the manifest has its own.
        "request_checksum_calculation": "when_required",
        "response_checksum_validation": "when_required",
    }
    system = s3fs.S3FileSystem(config_kwargs=config, use_listings_cache=False, skip_instance_cache=True)
    system.retries = READ_TRIES
    return BucketFolder(where, system)


class BucketFolder(Folder):
    """A prefix of a bucket."""

    def __init__(self, where: str, system: s3fs.S3FileSystem) -> None:
        super().__init__(where)
        self._system = system
        self._bucket, _, self._prefix = where.removeprefix(BUCKET).partition("/")

    def __truediv__(self, name: str) -> "BucketFolder":
        return BucketFolder(f"{self.where}/{name}", self._system)

    def folders(self) -> list[str]:
        return [name for name, entry in self._listed().items() if entry["type"] == "directory"]

    def files(self) -> dict[str, int]:
        return {name: entry["size"] for name, entry in self._listed().items() if entry["type"] == "file"}

    def has(self, name: str) -> bool:
        try:
            self._ask(self._call, "head_object", Key=self._key(name))
        except FileNotFoundError:
            return False
        return True

    def read(self, name: str) -> bytes:
        return self._get(name)

    def read_into(self, name: str, start: int, room: memoryview) -> None:
        for first in range(0, room.nbytes, BLOCK_BYTES):
            part = room[first : first + BLOCK_BYTES]
            content = self._get(name, start + first, start + first + part.nbytes)
            if len(content) != part.nbytes:
                raise OSError(f"it ends before byte {start + room.nbytes}")
            part[:] = content

    def sha256(self, name: str, size: int) -> str | None:
        if self._ask(self._call, "head_object", Key=self._key(name))["ContentLength"] != size:
            return None
        digest, read = hashlib.sha256(), 0
        firsts = range(0, size, BLOCK_BYTES)
        for block in _ahead(lambda first: self._get(name, first, min(first + BLOCK_BYTES, size)), firsts):
            digest.update(block)
            read += len(block)
        return digest.hexdigest() if read == size else None

    def write(self, name: str, content: memoryview) -> None:
        if content.nbytes <= BLOCK_BYTES:
            self._put(name, bytes(content))
        else:
            self._upload(self._key(name), content)

    def publish(self, name: str, content: bytes) -> None:
        """A PUT without an answer may have arrived: then it counts."""
        try:
            self._put(name, content)
        except OSError:
            if not self._arrived(name, content):
                raise

    def remove(self, name: str) -> None:
        self._ask(self._call, "delete_object", Key=self._key(name))

    def remove_all(self) -> None:
        with contextlib.suppress(OSError):
            self.each(self.remove, self.files())

    def each(self, do: Callable[[T], R], things: Iterable[T]) -> list[R]:
        return list(_ahead(do, things))

    @contextlib.contextmanager
    def filled(self, last: str) -> Iterator[Path]:
        if self._listed():
            raise FileExistsError(f"{self} is not an empty folder; name a new one.")
        with tempfile.TemporaryDirectory(prefix="shardyard-") as folder:
            yield Path(folder)
            for file in sorted(Path(folder).iterdir(), key=lambda file: file.name == last):
                self.write(file.name, _mapped(file))

    def discard_partial(self, last: str) -> None:
        if not self.has(last):
            self.remove_all()

    def sweep(self) -> None:
        found = self._ask(self._call, "list_multipart_uploads", Prefix=self._key(""))
        for upload in found.get("Uploads", ()):
            self._abort(upload["Key"], upload["UploadId"])

    def _put(self, name: str, content: bytes) -> None:
        self._ask(self._call, "put_object", Key=self._key(name), Body=content)

    def _upload(self, key: str, content: memoryview) -> None:
        upload = self._ask(self._call, "create_multipart_upload", Key=key)["UploadId"]
        try:
            size = max(BLOCK_BYTES, -(-content.nbytes // MOST_PARTS))
            firsts = range(0, content.nbytes, size)
            put = partial(self._put_part, key, upload, content, size)
            parts = {"Parts": self.each(put, firsts)}
            self._ask(self._call, "complete_multipart_upload", Key=key, UploadId=upload, MultipartUpload=parts)
        except BaseException:
            with contextlib.suppress(OSError):
                self._abort(key, upload)
            raise

    def _put_part(self, key: str, upload: str, content: memoryview, size: int, first: int) -> dict[str, Any]:
        number, body = 1 + first // size, bytes(content[first : first + size])
        put = self._ask(self._call, "upload_part", Key=key, UploadId=upload, PartNumber=number, Body=body)
        return {"PartNumber": number, "ETag": put["ETag"]}

    def _arrived(self, name: str, content: bytes) -> bool:
        with contextlib.suppress(OSError):
            return self.read(name) == content
        return False

    def _abort(self, key: str, upload: str) -> None:
        with contextlib.suppress(FileNotFoundError):  # it has ended meanwhile
            self._ask(self._call, "abort_multipart_upload", Key=key, UploadId=upload)

    def _listed(self) -> dict[str, Any]:
        """What lies in this folder, by name; folders in it are not looked into."""
        try:
            found = self._ask(self._system.ls, self.where, detail=True, refresh=True)
        except FileNotFoundError:
            return {}
        names = ((entry["name"].rpartition("/")[2], entry) for entry in found)
        return {name: entry for name, entry in names if name}  # the empty one is the folder itself

    def _get(self, name: str, start: int | None = None, end: int | None = None) -> bytes:
        content: bytes = self._ask(
            self._system.cat_file, f"{self.where}/{name}", start=start, end=end, max_concurrency=1
        )
        return content

    def _call(self, method: str, **arguments: Any) -> Any:
        return self._system.call_s3(method, Bucket=self._bucket, **arguments)

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}".removeprefix("/")

    def _ask(self, call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Raises `FileNotFoundError`, or `StorageError`."""
        try:
            return call(*arguments, **named)
        except FileNotFoundError as error:
            if _code(error) != "NoSuchBucket":
                raise
            raise StorageDenied(f"{BUCKET}{self._bucket} does not exist; make it, or name another.") from error
        except (OSError, *_FAULTS) as error:
            if _code(error) == "InvalidRange":
                raise  # the file ends before
            told = f"{BUCKET}{self._bucket}: {error or type(error).__name__}"
            if isinstance(error, _NOT_ALLOWED):
                raise StorageDenied(
                    f"{told}; give the workers credentials that may read, write, list and delete."
                ) from error
            raise StorageUnreachable(told) from error


def _ahead(do: Callable[[T], R], things: Iterable[T]) -> Iterator[R]:
    """`do` it with each, in order, a few ahead of what was taken. Nothing more is begun once one has failed."""
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="bucket") as pool:
        begun: deque[Future[R]] = deque()
        try:
            for thing in things:
                begun.append(pool.submit(do, thing))
                if len(begun) == AT_ONCE:
                    yield begun.popleft().result()
            while begun:
                yield begun.popleft().result()
        finally:
            for future in begun:
                future.cancel()


def _mapped(file: Path) -> memoryview:
    import mmap

    with file.open("rb") as opened:
        if file.stat().st_size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))


def _code(error: BaseException) -> str | None:
    """S3's own word for an error that s3fs has translated."""
    response = getattr(error.__cause__, "response", None) or {}
    code: str | None = response.get("Error", {}).get("Code")
    return code
