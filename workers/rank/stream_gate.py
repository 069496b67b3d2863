"""`python -m shardyard.workers.rank.stream_gate ADDRESS NAME DIGEST`: lets streams of the API reach a rank.

A stream is a terminal, or a connection to a port of the node's loopback. The gate listens on a free port of ADDRESS and prints where. Rules
that it keeps: a connection without the token whose SHA-256 is DIGEST gets no answer; no buffer grows with what a slow reader leaves; a
terminal ends with its connection unless it is kept; a gate that was not in use for `LINGER_S` ends. Its parent is `exec_guard.py`, which
leaves no process of it. Needs only the standard library, and runs without the variables that the job sets for Python.
"""

import asyncio
import contextlib
import ctypes
import hashlib
import hmac
import os
import sys
import time
from typing import Any, Final

from ..messages.stream_frames import CONTROL, DATA, MOST_FRAME, PROCESS_NAME, Stream, read_control, until_ended
from .pseudo_terminal import PseudoTerminal, shell, size_of

#: Streams of one gate at the same time.
MOST_STREAMS: Final = 64
#: Seconds for a connection to name what it wants.
HELLO_S: Final = 10.0
#: Seconds for a port to take some of what a client has sent; else the connection ends, since the client's own end is not noticed meanwhile.
STALL_S: Final = 300.0
#: Seconds without a stream after which a gate ends.
LINGER_S: Final = 60.0
#: Seconds between two looks at whether the gate is in use.
POLL_S: Final = 0.5
PR_SET_NAME: Final = 15


class Gate:
    """The streams of one rank."""

    def __init__(self, digest: str, linger_s: float = LINGER_S) -> None:
        self._digest, self._linger_s = digest, linger_s
        self._open = 0
        self._kept: PseudoTerminal | None = None
        self._recorded: set[str] = set()

    async def serve(self, address: str, name: str) -> None:
        """Serve connections until none was open for `linger_s`, or, once a terminal was kept, until this process is killed."""
        server = await asyncio.start_server(self._accepted, address, 0, limit=MOST_FRAME)
        show_number(0)
        report(f"{name} listens on {address} {server.sockets[0].getsockname()[1]}")
        async with server:
            used = time.monotonic()
            while self._open or self._kept or time.monotonic() - used < self._linger_s:
                if self._open:
                    used = time.monotonic()
                await asyncio.sleep(POLL_S)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stream = Stream(reader, writer)
        try:
            hello = await self._hello(stream)
            if hello is not None:
                await self._serve(hello, stream)
        except (OSError, ValueError, KeyError, TypeError, OverflowError):
            stream.abort()  # its client has gone, or sends something else
        finally:
            stream.close()

    async def _hello(self, stream: Stream) -> dict[str, Any] | None:
        """What a connection wants, if it has the token."""
        async with asyncio.timeout(HELLO_S):
            frame = await stream.read()
        if frame is None or frame[0] != CONTROL:
            return None
        hello = read_control(frame[1])
        digest = hashlib.sha256(str(hello.get("token", "")).encode()).hexdigest()
        return hello if hmac.compare_digest(digest, self._digest) else None

    async def _serve(self, hello: dict[str, Any], stream: Stream) -> None:
        if self._open >= MOST_STREAMS:
            await stream.control({"error": f"the rank has {MOST_STREAMS} open streams, and no room for more"})
            return
        self._open += 1
        show_number(self._open)
        wanted = hello["open"]
        try:
            if "port" in wanted:
                self._record(f"{hello['actor']} reached port {int(wanted['port'])} of the rank's node")
                await forward(stream, int(wanted["port"]))
            else:
                await self._attach(hello["actor"], stream, wanted)
        finally:
            self._open -= 1
            show_number(self._open)

    async def _attach(self, actor: str, stream: Stream, wanted: dict[str, Any]) -> None:
        terminal = self._kept if wanted["keep"] else None
        if terminal is None or terminal.ended:
            command = wanted["command"] or [shell()]
            self._record(f"{actor} opened a terminal: {' '.join(command)}")
            kept = bool(wanted["keep"])
            terminal = PseudoTerminal(command, *size_of(wanted), str(wanted.get("term", "")), kept=kept)
            self._kept = terminal if kept else self._kept
        else:
            terminal.resize(*size_of(wanted))
        terminal.attach(stream)
        try:
            while (frame := await stream.read()) is not None:
                if frame[0] == DATA:
                    await terminal.write(frame[1])
                else:
                    terminal.resize(*size_of(read_control(frame[1])))
        finally:
            terminal.detach(stream)
            if terminal is not self._kept:
                await terminal.hang_up()

    def _record(self, what: str) -> None:
        """Write who did what into the rank's log, once: a browser connects to a port many times."""
        if what not in self._recorded:
            self._recorded.add(what)
            report(what)


async def forward(stream: Stream, port: int) -> None:
    """Pass on what a client and a port of this node's loopback send each other, until the client ends the connection."""
    try:
        reader, writer = await connected(port)
    except OSError as error:
        await stream.control({"error": f"nothing accepts connections on port {port} there: {error.strerror or error}"})
        return
    await stream.control({"opened": True})

    async def to_port() -> None:
        while (frame := await stream.read()) is not None:
            if frame[0] == DATA:
                writer.write(frame[1])
                async with asyncio.timeout(STALL_S):
                    await writer.drain()
            else:  # {"eof": true}
                writer.write_eof()

    async def to_client() -> None:
        while content := await reader.read(MOST_FRAME):
            await stream.send(DATA, content)
        await stream.control({"eof": True})

    try:
        await until_ended(to_port(), to_client())
    finally:
        writer.close()


async def connected(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to a port of the loopback, of IPv4 or else of IPv6. Raises OSError."""
    try:
        return await asyncio.open_connection("127.0.0.1", port, limit=MOST_FRAME)
    except OSError as error:
        with contextlib.suppress(OSError):
            return await asyncio.open_connection("::1", port, limit=MOST_FRAME)
        raise error from None


def show_number(streams: int) -> None:
    """Show the number of open streams as the name of this process: `ps` has it, and what ends an idle job reads it."""
    ctypes.CDLL(None).prctl(PR_SET_NAME, f"{PROCESS_NAME}{streams}".encode(), 0, 0, 0)


def report(text: str) -> None:
    """Write a line into the rank's log."""
    os.write(1, f"{text}\n".encode())


def main(arguments: list[str]) -> int:
    """Returns the exit status."""
    if len(arguments) != 3:
        report("a gate for streams has an address, a name and a digest")
        return 2
    address, name, digest = arguments
    asyncio.run(Gate(digest).serve(address, name))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
