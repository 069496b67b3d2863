"""Bodies of requests by their size and in chunks; one that is cut or malformed is never taken for a whole one."""

import io
from email.message import Message

import pytest

from shardyard.workers.program import http_body
from shardyard.workers.program.http_body import UnreadableBody, blocks


def body(content: bytes, **headers: str) -> tuple[bytes, bytes]:
    """The body, and what follows it."""
    source, message = io.BytesIO(content), Message()
    for name, value in headers.items():
        message[name.replace("_", "-")] = value
    return b"".join(blocks(source, message)), source.read()


def test_a_body_ends_where_its_size_says() -> None:
    assert body(b"abcdef", Content_Length="4") == (b"abcd", b"ef")
    assert body(b"ef") == body(b"ef", Content_Length="0") == (b"", b"ef")


def test_chunks_are_put_together() -> None:
    sent = b"3\r\nabc\r\nA;name=value\r\n0123456789\r\n0\r\nX-Trailer: a\r\n\r\nnext"
    assert body(sent, Transfer_Encoding="chunked") == (b"abc0123456789", b"next")
    assert body(b"0\r\n\r\nnext", Transfer_Encoding="Chunked") == (b"", b"next")


def test_no_block_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_body, "BLOCK_BYTES", 4)
    message = Message()
    message["Transfer-Encoding"] = "chunked"
    found = list(blocks(io.BytesIO(b"9\r\n012345678\r\n1\r\na\r\n0\r\n\r\n"), message))
    assert found == [b"0123", b"4567", b"8", b"a"]


@pytest.mark.parametrize(
    "sent", [b"", b"3\r\n", b"3\r\nab", b"3\r\nabc\r\n"], ids=["nothing", "no chunk", "half a chunk", "no last chunk"]
)
def test_chunks_that_break_off_are_no_body(sent: bytes) -> None:
    with pytest.raises(ConnectionError):
        body(sent, Transfer_Encoding="chunked")


def test_a_body_that_is_shorter_than_its_size_is_none() -> None:
    with pytest.raises(ConnectionError):
        body(b"abc", Content_Length="4")


@pytest.mark.parametrize("line", [b"-3", b"0x3", b"+3", b"1_0", b"", b" 3", b"f" * 13, b"3" * 2000])
def test_a_chunk_needs_a_plain_size(line: bytes) -> None:
    with pytest.raises(UnreadableBody):
        body(line + b"\r\nabc\r\n0\r\n\r\n", Transfer_Encoding="chunked")


@pytest.mark.parametrize(
    "headers",
    [
        {"Content_Length": "-1"},
        {"Content_Length": "x"},
        {"Content_Length": "+4"},
        {"Content_Length": ""},
        {"Transfer_Encoding": "gzip"},
        {"Transfer_Encoding": "chunked", "Content_Length": "4"},
    ],
)
def test_a_body_whose_end_is_unknown_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(UnreadableBody):
        body(b"0\r\n\r\n", **headers)


def test_what_follows_a_chunk_and_the_last_one_is_checked() -> None:
    for sent in (b"3\r\nabcdef\r\n0\r\n\r\n", b"0\r\n" + b"a: b\r\n" * 200 + b"\r\n"):
        with pytest.raises(UnreadableBody):
            body(sent, Transfer_Encoding="chunked")
