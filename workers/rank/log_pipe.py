"""Reads a trainer's pipes as numbered lines. Unread bytes stay in the kernel. Under back-pressure log lines are dropped and counted."""

import asyncio
import contextlib
import math
import os
from collections import deque
from typing import Final

from ..messages.event import LogEvent, to_json
from ..messages.event_buffer import Spool
from .log_lines import LogLines, cut
from .secret_mask import SecretMask

#: If lines come faster than this, a reader waits for this time before it reads again: few wake-ups cost a step no time.
#: It does not wait while the trainer writes much, since the trainer would then wait for its reader.
GATHER_S: Final = 0.2
BUSY_S: Final = 1.0
CHUNK: Final = 1 << 16
#: Bytes of lines in the spool whose source waits. The spool has eight times as much.
PUT_BYTES: Final = 1 << 20


class Lines:
    """Complete lines of a pipe or socket, read on demand. Unread bytes stay in the kernel; a full pipe makes the writer wait.

    `longest`: bytes of a line of a log (`LogLines`); None: they are messages, which come whole.
    """

    def __init__(self, fd: int, longest: int | None = None) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self._log = None if longest is None else LogLines(longest)
        self.mask = SecretMask()
        self._rest: list[bytes] = []  # what was read of a message whose end has not been read
        self._busy_until = 0.0
        self._waited_s = math.inf
        self._is_full = False  # whether the last read found bytes without waiting

    @property
    def quick(self) -> bool:
        """Whether lines come faster than every `GATHER_S`."""
        return self._waited_s < GATHER_S

    async def gather(self) -> None:
        """Wait `GATHER_S` for more lines, if they come quickly and the writer does not wait for its reader."""
        if self.quick and asyncio.get_running_loop().time() >= self._busy_until:
            await asyncio.sleep(GATHER_S)

    async def read(self) -> list[bytes] | None:
        """The next complete lines (perhaps none); None at the end."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        if self._is_full:
            await asyncio.sleep(0)  # a writer that keeps the pipe full would otherwise stop all else on this loop
        self._is_full = True
        while True:
            try:
                data = os.read(self.fd, CHUNK)
                break
            except BlockingIOError:
                self._is_full = False
                readable: asyncio.Future[None] = loop.create_future()
                loop.add_reader(self.fd, _resolve, readable)
                try:
                    await readable
                finally:
                    loop.remove_reader(self.fd)
            except ConnectionError:
                data = b""
                break
        self._waited_s = loop.time() - began
        if len(data) * 2 >= CHUNK:
            self._busy_until = loop.time() + BUSY_S
        if not data:
            return self._end() or None
        return self._split(data)

    def read_now(self) -> list[bytes]:
        """The complete lines of what is in the pipe, which holds `CHUNK` bytes at most, without waiting."""
        with contextlib.suppress(BlockingIOError, ConnectionError):
            return self._split(os.read(self.fd, CHUNK))
        return []

    @property
    def rest(self) -> bytes:
        """The beginning of a line whose end has not been read."""
        return b"".join(self._rest) if self._log is None else self._log.rest

    def _split(self, data: bytes) -> list[bytes]:
        if self._log is not None:
            return self._log.take(data, self.mask)
        first, *others = data.split(b"\n")
        self._rest.append(first)
        if not others:
            return []
        lines = [b"".join(self._rest), *others[:-1]]
        self._rest = others[-1:]
        return lines

    def _end(self) -> list[bytes]:
        """The last line, if it has no end."""
        if self._log is not None:
            return self._log.end()
        rest, self._rest = self.rest, []
        return [rest] if rest else []


def _resolve(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


class Logs:
    """Numbers a rank's lines (both streams, one count) and drops them, counted, while the spool is half full."""

    def __init__(self, rank: int, spool: Spool) -> None:
        self.rank = rank
        self.spool = spool
        self.next = 1
        self.dropped = 0
        self._put: deque[tuple[int, int]] = deque()  # events of `put` that are not acknowledged: number, bytes

    def add(self, stream: str, lines: list[bytes]) -> None:
        if self.spool.half_full:
            self.dropped += len(lines)
            return
        self.report_dropped()
        self._add(stream, [_text(part) for line in lines for part in cut(line)])

    @property
    def has_room(self) -> bool:
        """Whether there is room for `put`. It has room of its own, whatever the rank prints, as long as its events are taken."""
        while self._put and self._put[0][0] <= self.spool.acknowledged:
            self._put.popleft()
        return not self.spool.full and sum(size for _, size in self._put) < PUT_BYTES

    def put(self, stream: str, lines: list[bytes]) -> None:
        """Add lines of a source that waits for `has_room`: a user's command. None is dropped."""
        if lines:
            self._add(stream, [_text(part) for line in lines for part in cut(line)])
            self._put.append((self.spool.last, sum(map(len, lines)) + len(lines)))

    def report_dropped(self) -> None:
        """Add a notice that counts the lines dropped since the last one that was kept."""
        if self.dropped:
            notice = f"[shardyard: {self.dropped} lines dropped, the log is written faster than it is read]"
            self.dropped = 0
            self._add("stderr", [notice])

    def _add(self, stream: str, texts: list[str]) -> None:
        if texts:
            event = LogEvent(rank=self.rank, stream=stream, first=self.next, lines=tuple(texts))
            self.spool.add(event.kind, to_json(event))
            self.next += len(texts)


def _text(line: bytes) -> str:
    """The line decoded as UTF-8. Invalid bytes are replaced, and so is NUL, which PostgreSQL cannot store."""
    return line.rstrip(b"\r").decode("utf-8", "replace").replace("\0", "\ufffd")
