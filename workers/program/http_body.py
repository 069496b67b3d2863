"""The body of an HTTP/1.1 request in blocks, so that a large one is never whole in memory.

Clients send a file by its size, or in chunks where they do not know it or it is empty (RFC 9112, section 7.1).
"""

import re
from collections.abc import Iterator
from email.message import Message
from io import BufferedIOBase
from typing import Final

#: Maximum bytes of a block.
BLOCK_BYTES: Final = 1 << 20
#: Maximum bytes of the line before a chunk, and number of lines after the last one.
_MOST_LINE: Final = 1024
_MOST_TRAILERS: Final = 100
_CHUNK: Final = re.compile(rb"([0-9a-fA-F]{1,12})[ \t]*(?:;.*)?\r?\n", re.DOTALL)
_SIZE: Final = re.compile("[0-9]{1,15}")


class UnreadableBody(Exception):
    """Where the body ends is not known, so nothing after it can be read."""


def blocks(source: BufferedIOBase, headers: "Message[str, str]") -> Iterator[bytes]:
    """The body of the request with these headers, in blocks of at most `BLOCK_BYTES`.

    Raises UnreadableBody, and ConnectionError for a body that ends early.
    """
    if "Transfer-Encoding" not in headers:
        size = headers.get("Content-Length", "0")
        if not _SIZE.fullmatch(size):
            raise UnreadableBody
        yield from _read(source, int(size))
        return
    if headers["Transfer-Encoding"].lower() != "chunked" or "Content-Length" in headers:
        raise UnreadableBody
    while size_of_chunk := _chunk(source):
        yield from _read(source, size_of_chunk)
        if source.readline(_MOST_LINE) not in (b"\r\n", b"\n"):
            raise UnreadableBody
    for _ in range(_MOST_TRAILERS):
        if source.readline(_MOST_LINE) in (b"\r\n", b"\n", b""):
            return
    raise UnreadableBody


def _chunk(source: BufferedIOBase) -> int:
    """Bytes of the next chunk; 0 after the last one."""
    line = source.readline(_MOST_LINE)
    if not line:
        raise ConnectionError("the body ends early")
    if not (found := _CHUNK.fullmatch(line)):
        raise UnreadableBody
    return int(found[1], 16)


def _read(source: BufferedIOBase, size: int) -> Iterator[bytes]:
    while size > 0:
        block = source.read(min(size, BLOCK_BYTES))
        if not block:
            raise ConnectionError("the body ends early")
        size -= len(block)
        yield block
