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
