import threading
from typing import Any

import pytest

from shardyard.workers.storage.errors import StorageUnreachable
from shardyard.workers.storage.s3_bucket import AT_ONCE, Bucket, ahead


def test_results_come_in_order_and_only_a_few_ahead() -> None:
    begun: list[int] = []
    results = ahead(lambda number: begun.append(number) or number * number, range(100))
    assert [next(results) for _ in range(3)] == [0, 1, 4]
    assert len(begun) <= AT_ONCE + 2
    assert list(results) == [number * number for number in range(3, 100)]


def test_nothing_more_begins_once_one_has_failed() -> None:
    begun: list[int] = []
    lock = threading.Lock()

    def fail_at_first(number: int) -> int:
        with lock:
            begun.append(number)
        if number == 0:
            raise OSError("the disk is gone")
        return number

    with pytest.raises(OSError, match="the disk is gone"):
        list(ahead(fail_at_first, range(100)))
    assert len(begun) <= AT_ONCE


class Refused(Exception):
    """An answer of S3, as botocore raises it."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.response = {"Error": {"Code": code}}


class Server:
    """Refuses conditional writes with a code, as s3fs translates it."""

    def __init__(self, code: str) -> None:
        self._code = code
        self.written: list[bytes] = []

    def call_s3(self, _method: str, **request: Any) -> None:
        if "IfNoneMatch" in request:
            raise OSError("refused") from Refused(self._code)
        self.written.append(request["Body"])


def test_a_server_that_has_no_conditional_writes_is_written_to_without() -> None:
    there, without = Server("PreconditionFailed"), Server("NotImplemented")
    for server in (there, without):
        system: Any = server
        Bucket("name", system).put_first("key", b"content")
    assert (there.written, without.written) == ([], [b"content"])
    silent: Any = Server("InternalError")
    with pytest.raises(StorageUnreachable):
        Bucket("name", silent).put_first("key", b"content")


class Uploads:
    """A server with one object, whose uploads have ended when they are to be completed, as s3fs says it."""

    def __init__(self, arrives: bool) -> None:
        self._arrives = arrives  # an earlier request has completed them; otherwise another process has aborted them
        self.object: dict[str, Any] = {"ContentLength": 4, "Metadata": {}}
        self._upload: dict[str, Any] = {}

    def call_s3(self, method: str, **request: Any) -> dict[str, Any]:
        if method == "create_multipart_upload":
            self._upload = {"ContentLength": 0, "Metadata": request.get("Metadata", {})}
        elif method == "upload_part":
            self._upload["ContentLength"] += len(request["Body"])
        elif method == "head_object":
            return self.object
        else:
            self.object = self._upload if self._arrives else self.object
            raise FileNotFoundError(method)
        return {"UploadId": "1", "ETag": "2"}


def test_a_large_object_counts_when_the_answer_to_its_completion_was_lost() -> None:
    """One of the same size that was there before does not."""
    server: Any = Uploads(arrives=True)
    Bucket("name", server).upload("key", memoryview(b"text"))
    assert server.object["ContentLength"] == 4 and server.object["Metadata"]
    server = Uploads(arrives=False)
    with pytest.raises(FileNotFoundError, match="complete_multipart_upload"):
        Bucket("name", server).upload("key", memoryview(b"text"))
