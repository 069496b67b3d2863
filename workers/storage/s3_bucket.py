"""Requests to an S3 bucket, by s3fs. Every request ends: connecting, and each wait for bytes, has a time-out; tries are limited.

An answer that does not show whether a file exists raises `StorageError`, never `FileNotFoundError`.
"""

import contextlib
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Any, Final, TypeVar

import aiohttp
import s3fs
from botocore.exceptions import BotoCoreError, NoCredentialsError, PartialCredentialsError

from .errors import StorageDenied, StorageUnreachable
from .file_content import FileContent
from .uri import BUCKET

T = TypeVar("T")
R = TypeVar("R")

#: Requests of one rank at once, and bytes of a file in each: a rank holds at most their product in memory beside its files.
AT_ONCE: Final = 8
BLOCK_BYTES: Final = 16 << 20
#: Bytes of a copy within a bucket, or of its parts: S3 answers well within `READ_S`.
COPIED_BYTES: Final = 128 << 20
#: S3 takes no upload of more parts.
MOST_PARTS: Final = 10_000
#: Objects or uploads of one answer to a listing; S3 sends no more.
PAGE: Final = 1000
CONNECT_S: Final = 10
READ_S: Final = 30
#: Tries of a request by botocore, which waits longer each time; and, around that, by s3fs, which also reads broken content again.
TRIES: Final = 2
READ_TRIES: Final = 2
#: Metadata of an object that was written in parts: the mark of its upload.
_UPLOAD: Final = "shardyard-upload"

#: What botocore and aiohttp raise beside `OSError`.
_FAULTS: Final = (BotoCoreError, aiohttp.ClientError, TimeoutError)
_NOT_ALLOWED: Final = (PermissionError, NoCredentialsError, PartialCredentialsError)


def open_bucket(name: str) -> "Bucket":
    """The bucket of this name. Sends no request yet."""
    config = {
        "connect_timeout": CONNECT_S,
        "read_timeout": READ_S,
        "max_pool_connections": AT_ONCE,
        "retries": {"mode": "standard", "total_max_attempts": TRIES},
        # Not every S3-compatible server supports the newer checksums; the manifest has its own.
        "request_checksum_calculation": "when_required",
        "response_checksum_validation": "when_required",
    }
    system = s3fs.S3FileSystem(config_kwargs=config, use_listings_cache=False, skip_instance_cache=True)
    system.retries = READ_TRIES
    return Bucket(name, system)


class Bucket:
    """One bucket."""

    def __init__(self, name: str, system: s3fs.S3FileSystem) -> None:
        self.name = name
        self._system = system

    def call(self, method: str, **arguments: Any) -> Any:
        """S3's own request of this name. Raises `FileNotFoundError`, `StorageError`."""
        return self._call_checked(self._system.call_s3, method, Bucket=self.name, **arguments)

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        """An object's bytes from `start` to `end`."""
        content: bytes = self._call_checked(
            self._system.cat_file, f"{BUCKET}{self.name}/{key}", start=start, end=end, max_concurrency=1
        )
        return content

    def put(self, key: str, content: bytes) -> None:
        """Write an object in one request: it exists whole or not at all."""
        self.call("put_object", Key=key, Body=content)

    def put_first(self, key: str, content: bytes) -> None:
        """Write an object in one request unless there is one. On a server without conditional writes the last writer wins."""
        try:
            self.call("put_object", Key=key, Body=content, IfNoneMatch="*")
        except OSError as error:
            code = _code(error.__cause__ or error)
            if code == "NotImplemented":
                self.put(key, content)
            elif code != "PreconditionFailed":
                raise

    def listed(self, prefix: str) -> list[dict[str, Any]]:
        """The objects and folders in a folder, with `name`, `size` and `type`; none in one that is not there. Raises `StorageError`."""
        found: list[dict[str, Any]] = []
        for page in self._pages(Prefix=f"{prefix}/" if prefix else "", Delimiter="/"):
            for one in page.get("Contents", ()):
                found.append({"name": one["Key"], "size": one["Size"], "type": "file"})
            for one in page.get("CommonPrefixes", ()):
                found.append({"name": one["Prefix"].rstrip("/"), "size": 0, "type": "directory"})
        return found

    def objects(self, prefix: str, most: int) -> list[dict[str, Any]]:
        """Up to `most` objects whose keys begin with a prefix, in S3's own words: `Key`, `Size`, `ETag`. Raises as `listed`."""
        found = (one for page in self._pages(Prefix=prefix) for one in page.get("Contents", ()))
        return list(islice(found, most))

    def _pages(self, **wanted: str) -> Iterator[dict[str, Any]]:
        """The answers to a listing, one after the other."""
        more: dict[str, str] = {}
        while True:
            page = self.call("list_objects_v2", MaxKeys=PAGE, **wanted, **more)
            yield page
            if not page.get("IsTruncated"):
                return
            more = {"ContinuationToken": page["NextContinuationToken"]}

    def uploads(self, prefix: str) -> Iterator[list[dict[str, Any]]]:
        """The unfinished uploads of objects whose keys begin with a prefix, in S3's own words: `Key`, `UploadId`. An answer at a time.

        SeaweedFS says after no answer where the next one begins. There it comes without the uploads that were aborted meanwhile.
        """
        seen: set[str] = set()
        more: dict[str, str] = {}
        while True:
            page = self.call("list_multipart_uploads", Prefix=prefix, MaxUploads=PAGE, **more)
            new = [upload for upload in page.get("Uploads", ()) if upload["UploadId"] not in seen]
            yield new
            if not page.get("IsTruncated") or not new:
                return
            seen |= {upload["UploadId"] for upload in new}
            if "NextKeyMarker" in page:
                more = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page.get("NextUploadIdMarker", "")}

    def upload(self, key: str, content: memoryview | FileContent, beat: Callable[[], None] = lambda: None) -> None:
        """Write a large object in parts: it exists once all parts are written. `beat` is called for each part."""
        self._in_parts(key, content.nbytes, BLOCK_BYTES, partial(self._put_part, key, content), beat)

    def copy(self, key: str, source: str, size: int) -> None:
        """Write an object of `size` bytes with the content of another of the bucket, which S3 copies."""
        if size > COPIED_BYTES:
            self._in_parts(key, size, COPIED_BYTES, partial(self._copy_part, key, source, size))
        else:
            self.call("copy_object", Key=key, CopySource={"Bucket": self.name, "Key": source})

    def _in_parts(
        self,
        key: str,
        nbytes: int,
        least: int,
        put: Callable[[str, int, int], dict[str, Any]],
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        """Write an object in parts of at least `least` bytes. `put`: of the upload, the size of parts, and the first byte of one."""
        mark = {_UPLOAD: secrets.token_hex(16)}
        upload = self.call("create_multipart_upload", Key=key, Metadata=mark)["UploadId"]
        try:
            size = max(least, -(-nbytes // MOST_PARTS))
            parts = []
            for part in ahead(partial(put, upload, size), range(0, nbytes, size)):
                parts.append(part)
                beat()
            try:
                self.call("complete_multipart_upload", Key=key, UploadId=upload, MultipartUpload={"Parts": parts})
            except FileNotFoundError:  # another process has aborted it, or an answer was lost and the object is there
                if self.call("head_object", Key=key).get("Metadata") != mark:
                    raise
        except BaseException:
            with contextlib.suppress(OSError):
                self.abort(key, upload)
            raise

    def _put_part(
        self, key: str, content: memoryview | FileContent, upload: str, size: int, first: int
    ) -> dict[str, Any]:
        number, body = 1 + first // size, bytes(content[first : first + size])
        put = self.call("upload_part", Key=key, UploadId=upload, PartNumber=number, Body=body)
        return {"PartNumber": number, "ETag": put["ETag"]}

    def _copy_part(self, key: str, source: str, nbytes: int, upload: str, size: int, first: int) -> dict[str, Any]:
        number, last = 1 + first // size, min(first + size, nbytes) - 1
        where = {"CopySource": {"Bucket": self.name, "Key": source}, "CopySourceRange": f"bytes={first}-{last}"}
        put = self.call("upload_part_copy", Key=key, UploadId=upload, PartNumber=number, **where)
        return {"PartNumber": number, "ETag": put["CopyPartResult"]["ETag"]}

    def abort(self, key: str, upload: str) -> None:
        """End an upload, if it has not ended, and free its parts."""
        with contextlib.suppress(FileNotFoundError):  # it has ended
            self.call("abort_multipart_upload", Key=key, UploadId=upload)

    def _call_checked(self, call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Raises `FileNotFoundError`, or `StorageError`."""
        try:
            return call(*arguments, **named)
        except FileNotFoundError as error:
            if _code(error) != "NoSuchBucket":
                raise
            raise StorageDenied(f"{BUCKET}{self.name} does not exist; make it, or name another.") from error
        except (OSError, *_FAULTS) as error:
            if _code(error) == "InvalidRange":
                raise  # the file ends before
            message = f"{BUCKET}{self.name}: {error or type(error).__name__}"
            if isinstance(error, _NOT_ALLOWED):
                raise StorageDenied(
                    f"{message}; give the workers credentials that may read, write, list and delete."
                ) from error
            raise StorageUnreachable(message) from error


def ahead(do: Callable[[T], R], things: Iterable[T]) -> Iterator[R]:
    """The results of `do` for each thing, in order, computed a few ahead. After a failure no further call begins."""
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


def _code(error: BaseException) -> str | None:
    """S3's own code of an error that s3fs has translated."""
    response = getattr(error.__cause__, "response", None) or {}
    code: str | None = response.get("Error", {}).get("Code")
    return code
