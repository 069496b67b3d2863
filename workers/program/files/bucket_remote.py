"""Files below a prefix of an S3 bucket, through the storage's own requests. An object counts while it has the ETag of the listing.

The ETag of an object that was written in one request is its MD5, unless KMS encrypts it
(https://docs.aws.amazon.com/AmazonS3/latest/API/API_Object.html). Then, and after an upload in parts, the object is asked for its ETag once
more when all its bytes are there: so no file has bytes of two versions.
"""

import hashlib
from typing import Any, Final

from ...storage.errors import StorageError
from ...storage.s3_bucket import open_bucket
from ...storage.uri import BUCKET
from .errors import FilesNotFetched
from .listing import MOST_FILES, Listing, RemoteFile, checked, too_many
from .remote import Damaged, Digest, Remote, Unanswered
from .source import Source

_ETAG: Final = "etag:"
_MD5_DIGITS: Final = 32


class BucketRemote(Remote):
    """A prefix of a bucket, or one object."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        name, _, self._prefix = source.where.removeprefix(BUCKET).partition("/")
        self._bucket = open_bucket(name)

    def listing(self) -> Listing:
        below = f"{self._prefix}/" if self._prefix else ""
        try:
            found = self._bucket.objects(below, MOST_FILES + 1)
            if len(found) > MOST_FILES:  # counted with the markers of folders, so that no file is left out
                raise too_many(self.source.where)
            files = [_file(one, below) for one in found if not one["Key"].endswith("/")]
            single = not files and bool(self._prefix)
            if single:
                files = self._object()
        except FileNotFoundError:
            files, single = [], False
        except StorageError as error:
            raise self._error(error) from None
        return checked(Listing(self.source.where, tuple(files), single=single))

    def read(self, listing: Listing, file: RemoteFile, start: int, end: int) -> bytes:  # noqa: ARG002  (a bucket has no revision)
        try:
            content = self._bucket.get(file.name, start, end)
        except StorageError as error:
            raise self._error(error, file) from None
        except OSError:  # it is gone, or shorter
            raise self.changed(file) from None
        if len(content) != end - start:
            raise self.changed(file)
        return content

    def digest(self, file: RemoteFile) -> Digest:  # noqa: ARG002  (an ETag is an MD5, or none that can be computed)
        return hashlib.md5(usedforsecurity=False)

    def verify(self, file: RemoteFile, digest: str) -> None:
        etag = file.check.removeprefix(_ETAG)
        if etag == digest:
            return
        head = self._head(file)
        if head is None or _etag(head) != etag or head["ContentLength"] != file.bytes:
            raise self.changed(file)
        encrypted = str(head.get("ServerSideEncryption", "")).startswith("aws:kms") or "SSECustomerAlgorithm" in head
        if len(etag) == _MD5_DIGITS and not encrypted:
            raise Damaged

    def _object(self) -> list[RemoteFile]:
        """The one object that the source names, if there is one."""
        head = self._bucket.call("head_object", Key=self._prefix)
        name = self._prefix.rpartition("/")[2]
        return [RemoteFile(name, head["ContentLength"], _ETAG + _etag(head), self._prefix)]

    def _head(self, file: RemoteFile) -> dict[str, Any] | None:
        try:
            head: dict[str, Any] = self._bucket.call("head_object", Key=file.name)
        except FileNotFoundError:
            return None
        except StorageError as error:
            raise self._error(error, file) from None
        return head

    def _error(self, error: StorageError, file: RemoteFile | None = None) -> FilesNotFetched:
        where = self.source.where if file is None else f"{self.source.where}: {file.name}"
        if error.passing:
            return Unanswered(f"{where}: {error}")
        remedy = (
            "give the job credentials that may read and list, as secrets AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        )
        return FilesNotFetched(f"{where}: {str(error).partition(';')[0]}; {remedy}")


def _file(found: dict[str, Any], below: str) -> RemoteFile:
    return RemoteFile(found["Key"].removeprefix(below), found["Size"], _ETAG + _etag(found), found["Key"])


def _etag(found: dict[str, Any]) -> str:
    return str(found["ETag"]).strip('"')
