"""Frames between an API server and a rank's gate (`rank/stream_gate.py`), over TCP. Needs only the standard library.

A frame is a kind (1 byte), a length (4 bytes, big-endian), and as many bytes. `DATA` is what a terminal or a port sends or gets; `CONTROL`
is a JSON object. The first frame is `{"token", "actor", "open": {…}}`, and its answer `{"opened": true}` or `{"error": text}`.
"""

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import Coroutine
from typing import Any, Final

HEADER: Final = struct.Struct("!BI")
DATA: Final = 0
CONTROL: Final = 1
#: Bytes of a frame's content.
MOST_FRAME: Final = 1 << 15
#: Seconds for the other side to take what was sent before a connection was closed.
CLOSE_S: Final = 2.0
#: Seconds after which the kernel ends a connection whose other side has vanished, also with data in flight, or takes no data. A slow
#: client does not reach it: its WebSocket fails to answer a ping for 140 s (`ws_ping_timeout` and the interval), and is closed then.
PEER_S: Final = 150.0
#: How the name of a gate's process begins, as `ps` shows it; the number of its open streams follows.
PROCESS_NAME: Final = "streams:"


class Stream:
    """The frames of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        _probe_peer(writer.get_extra_info("socket"))

    async def read(self) -> tuple[int, bytes] | None:
        """The next frame: its kind, and at most `MOST_FRAME` bytes. None at the connection's end. Raises ValueError for a longer one."""
        try:
            kind, size = HEADER.unpack(await self._reader.readexactly(HEADER.size))
            if size > MOST_FRAME:
                raise ValueError(f"a frame has {size} bytes, and may have {MOST_FRAME}")
            return kind, await self._reader.readexactly(size)
        except (asyncio.IncompleteReadError, OSError):
            return None

    def put(self, kind: int, content: bytes) -> None:
        """Send at most `MOST_FRAME` bytes without waiting for the other side to take them."""
        self._writer.write(HEADER.pack(kind, len(content)) + content)

    async def send(self, kind: int, content: bytes) -> None:
        """Send bytes, in as many frames as they need; waits while the other side does not take them. Raises OSError."""
        for at in range(0, len(content), MOST_FRAME):
            self.put(kind, content[at : at + MOST_FRAME])
            await self._writer.drain()

    async def control(self, message: dict[str, Any]) -> None:
        """Raises OSError."""
        await self.send(CONTROL, json.dumps(message).encode())

    def close(self) -> None:
        """Send what is left, and end the connection, after `CLOSE_S` also where the other side takes nothing."""
        self._writer.close()
        asyncio.get_running_loop().call_later(CLOSE_S, self.abort)

    def abort(self) -> None:
        """End the connection at once."""
        self._writer.transport.abort()


async def until_ended(lasting: Coroutine[Any, Any, None], other: Coroutine[Any, Any, None]) -> None:
    """Run both directions of a connection until `lasting` has ended or one has failed. Cancels what remains."""
    tasks = [asyncio.ensure_future(one) for one in (lasting, other)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not tasks[0].done() and tasks[1].exception() is None:
            await asyncio.wait(tasks[:1])
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def connected(host: str, port: int) -> Stream:
    """A connection to a gate. Raises OSError."""
    return Stream(*await asyncio.open_connection(host, port, limit=MOST_FRAME))


def _probe_peer(connection: Any) -> None:
    """Have the kernel end a connection whose other side has vanished: one without data is probed after 60 s, every 10 s."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 10), (socket.TCP_USER_TIMEOUT, int(1000 * PEER_S)))
    for option, value in options:
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def read_control(content: bytes) -> dict[str, Any]:
    """The object of a control frame; empty if it is none."""
    with contextlib.suppress(ValueError, RecursionError):
        message = json.loads(content)
        if isinstance(message, dict):
            return message
    return {}
