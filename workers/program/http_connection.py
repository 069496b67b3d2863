"""One connection of an HTTP/1.1 server. Bodies come in blocks, so that a large one is never whole in memory.

h11 reads and writes the messages. Clients send a file by its size, or in chunks where they do not know it or it is empty (RFC 9112,
section 7.1).
"""

from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from typing import Final

import h11

#: Maximum bytes that are received at once.
BLOCK_BYTES: Final = 1 << 18
#: Maximum bytes of the lines before a body, and of those after one in chunks.
MOST_HEAD: Final = 1 << 16


class HttpConnection:
    """The server's side. `receive` returns at most that many bytes, and none at the client's end; `send` sends all."""

    def __init__(self, receive: Callable[[int], bytes], send: Callable[[bytes], object]) -> None:
        self._receive, self._send = receive, send
        self._protocol = h11.Connection(h11.SERVER, MOST_HEAD)
        self._is_head = False

    def request(self) -> h11.Request | None:
        """The next request; None if the client or the last answer has ended the connection, or a body was not read to its end.

        Raises h11.RemoteProtocolError for what is no request of HTTP/1.1, and what `receive` raises.
        """
        if self._protocol.our_state is not h11.IDLE:
            if self._protocol.our_state is not h11.DONE or self._protocol.their_state is not h11.DONE:
                return None
            self._protocol.start_next_cycle()
        event = self._next()
        if not isinstance(event, h11.Request):
            return None
        self._is_head = event.method == b"HEAD"
        return event

    def body(self) -> Iterator[bytes]:
        """The body of the request, in blocks of at most about `BLOCK_BYTES`.

        Raises h11.RemoteProtocolError for one that is malformed or ends early, and what `receive` raises.
        """
        if self._protocol.they_are_waiting_for_100_continue:
            self._write(h11.InformationalResponse(status_code=HTTPStatus.CONTINUE, headers=[], reason="Continue"))
        while isinstance(event := self._next(), h11.Data):
            yield event.data

    def answer(
        self, status: HTTPStatus, kind: str, size: int, content: Iterable[bytes], *, is_last: bool = False
    ) -> None:
        """Answer the request with `content` of `size` bytes and of the media type `kind`. `is_last`: the connection ends then.

        Raises what `send` and reading `content` raise; then the client sees that something is missing.
        """
        headers = [("Content-Type", kind), ("Content-Length", str(size))]
        if is_last:
            headers.append(("Connection", "close"))
        self._write(h11.Response(status_code=status, headers=headers, reason=status.phrase))
        for block in content if not self._is_head else ():
            self._write(h11.Data(data=block))
        self._write(h11.EndOfMessage())

    def _next(self) -> object:
        """The next event of the client."""
        while (event := self._protocol.next_event()) is h11.NEED_DATA:
            self._protocol.receive_data(self._receive(BLOCK_BYTES))
        return event

    def _write(self, event: h11.InformationalResponse | h11.Response | h11.Data | h11.EndOfMessage) -> None:
        self._send(self._protocol.send(event))
