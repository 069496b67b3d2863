"""Bodies of requests by their size and in chunks; one that is cut or malformed is never taken for a whole one."""

import io
from http import HTTPStatus

import h11
import pytest

from shardyard.workers.program import http_connection
from shardyard.workers.program.http_connection import MOST_HEAD, HttpConnection


def connection(sent: bytes) -> tuple[HttpConnection, bytearray]:
    """A connection whose client sends this and no more, and what it is answered."""
    answered = bytearray()
    return HttpConnection(io.BytesIO(sent).read, answered.extend), answered


def post(body: bytes, *headers: str) -> bytes:
    return "\r\n".join(["POST /a HTTP/1.1", "Host: a", *headers, "", ""]).encode() + body


def chunked(body: bytes) -> bytes:
    return post(body, "Transfer-Encoding: chunked")


NEXT = post(b"next", "Content-Length: 4")


def bodies(sent: bytes) -> list[bytes]:
    """The bodies of all requests of a client, each of which is answered."""
    http, _ = connection(sent)
    found = []
    while http.request() is not None:
        found.append(b"".join(http.body()))
        http.answer(HTTPStatus.OK, "text/plain", 0, [])
    return found


def test_a_body_ends_where_its_size_says() -> None:
    assert bodies(post(b"abcd", "Content-Length: 4") + NEXT) == [b"abcd", b"next"]
    assert bodies(post(b"") + post(b"", "Content-Length: 0") + NEXT) == [b"", b"", b"next"]


def test_chunks_are_put_together() -> None:
    sent = b"3\r\nabc\r\nA;name=value\r\n0123456789\r\n0\r\nX-Trailer: a\r\n\r\n"
    assert bodies(chunked(sent) + NEXT) == [b"abc0123456789", b"next"]
    assert bodies(post(b"0\r\n\r\n", "transfer-encoding: Chunked") + NEXT) == [b"", b"next"]


def test_no_block_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "BLOCK_BYTES", 4)
    http, _ = connection(chunked(b"9\r\n012345678\r\n1\r\na\r\n0\r\n\r\n"))
    assert http.request() is not None
    found = list(http.body())
    assert b"".join(found) == b"012345678a" and max(map(len, found)) <= 4


@pytest.mark.parametrize(
    "sent", [b"", b"3", b"3\r\n", b"3\r\nab", b"3\r\nabc\r\n"], ids=["nothing", "half", "size", "half a chunk", "chunk"]
)
def test_chunks_that_break_off_are_no_body(sent: bytes) -> None:
    with pytest.raises(h11.RemoteProtocolError):
        bodies(chunked(sent))


def test_a_body_that_is_shorter_than_its_size_is_none() -> None:
    with pytest.raises(h11.RemoteProtocolError):
        bodies(post(b"abc", "Content-Length: 4"))


@pytest.mark.parametrize("line", [b"-3", b"0x3", b"+3", b"1_0", b"", b" 3", b"f" * 21, b"3" * 2000])
def test_a_chunk_needs_a_plain_size(line: bytes) -> None:
    with pytest.raises(h11.RemoteProtocolError):
        bodies(chunked(line + b"\r\nabc\r\n0\r\n\r\n"))


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("Content-Length: -1", 400),
        ("Content-Length: x", 400),
        ("Content-Length: +4", 400),
        ("Content-Length:", 400),
        ("Content-Length: 4, 5", 400),
        ("Transfer-Encoding: gzip", 501),
        ("no header", 400),
    ],
)
def test_a_body_whose_end_is_unknown_is_refused(header: str, status: int) -> None:
    http, answered = connection(post(b"0\r\n\r\n", header))
    with pytest.raises(h11.RemoteProtocolError) as caught:
        http.request()
    assert caught.value.error_status_hint == status
    http.answer(HTTPStatus(status), "text/plain", 1, [b"x"], is_last=True)
    assert answered.startswith(b"HTTP/1.1 %d " % status) and http.request() is None


def test_a_request_without_an_end_is_not_kept() -> None:
    http, _ = connection(b"POST /a HTTP/1.1\r\n" + b"a: b\r\n" * MOST_HEAD)
    with pytest.raises(h11.RemoteProtocolError) as caught:
        http.request()
    assert caught.value.error_status_hint == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE


def test_a_client_that_waits_for_it_is_asked_for_the_body() -> None:
    http, answered = connection(post(b"abc", "Content-Length: 3", "Expect: 100-continue"))
    assert http.request() is not None and answered == b""
    assert b"".join(http.body()) == b"abc"
    assert answered == b"HTTP/1.1 100 Continue\r\n\r\n"


def test_an_answer_has_its_size_and_may_be_the_last() -> None:
    http, answered = connection(post(b"") + post(b"") + post(b""))
    for is_last in (False, True):
        assert http.request() is not None and not list(http.body())
        answered.clear()
        http.answer(HTTPStatus.NOT_FOUND, "text/plain", 5, [b"ab", b"cde"], is_last=is_last)
        last = "Connection: close\r\n" if is_last else ""
        head = f"HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n{last}\r\n"
        assert answered == f"{head}abcde".encode()
    assert http.request() is None


def test_an_answer_to_head_has_no_content() -> None:
    http, answered = connection(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n")
    assert http.request() is not None and not list(http.body())
    http.answer(HTTPStatus.OK, "text/plain", 5, [b"abcde"])
    assert b"Content-Length: 5\r\n" in answered and answered.endswith(b"\r\n\r\n")


def test_nothing_follows_a_body_that_was_not_read() -> None:
    http, _ = connection(post(b"abcd", "Content-Length: 4") + NEXT)
    assert http.request() is not None
    http.answer(HTTPStatus.OK, "text/plain", 0, [])
    assert http.request() is None


def test_what_follows_a_chunk_and_the_last_one_is_checked() -> None:
    for sent in (b"3\r\nabcdef\r\n0\r\n\r\n", b"0\r\n" + b"a: b\r\n" * MOST_HEAD):
        with pytest.raises(h11.RemoteProtocolError):
            bodies(chunked(sent))
