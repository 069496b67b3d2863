"""Copies of snapshots on another node, so that a node's death costs no more than a trainer's.

Rules that it keeps: a copy is complete or absent: its keeper seals it last, and never what changed while it was read. A rank
overwrites its older snapshot only when the newer one is copied; ranks meet in between, so that whichever node dies, one step is in
everybody's snapshots or copies. Who waits for a copy waits for a bounded time: a buddy that is gone stops no training.

The trainer rings a bell, a pair of sockets, when a snapshot is sealed; its actor copies it to its buddy, the actor of a rank on
another node, and rings back. Imports neither torch nor Ray: both the trainer and the actor do.
"""

import asyncio
import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from . import shared_memory
from .shared_memory import Header

#: So much at once: it passes through the memory of two actors and of Ray's object store.
CHUNK: Final = 4 << 20
#: A buddy that takes a chunk for longer is gone, or as good as; it is tried again after so long.
CHUNK_S: Final = 10.0
AGAIN_S: Final = 30.0
#: A trainer whose actor does not ring back trains on after so long.
PATIENCE_S: Final = 60.0
#: A snapshot's step, and on the way back the seconds of processor time that its copy took.
_NEWS: Final = struct.Struct("<Qd")


class Stale(RuntimeError):
    """Somebody of an earlier generation, who was cut off and does not know that it has ended."""


@dataclass(frozen=True)
class Chunk:
    """A part of one rank's snapshot, from byte `start` of its slot."""

    rank: int
    generation: int
    header: Header
    start: int
    data: bytes

    @property
    def last(self) -> bool:
        return self.start + len(self.data) >= self.header.size


Give = Callable[[Chunk], Awaitable[bool]]


async def send(fd: int, rank: int, generation: int, give: Give) -> bool:
    """Give away a slot's content chunk by chunk; False when it is empty or changed meanwhile. Raises what `give` raises.

    `give` answers whether it wants more.
    """
    header, start, more = shared_memory.read_header(fd), shared_memory.START, True
    while header is not None and more and start < header.size:
        data = os.pread(fd, min(CHUNK, header.size - start), start)
        if shared_memory.read_header(fd) != header:
            return False
        more = await give(Chunk(rank, generation, header, start, data))
        start += len(data)
    return header is not None


class Keeper:
    """What an actor keeps for others: two slots for each of their ranks."""

    def __init__(self) -> None:
        self.slots: dict[int, list[int]] = {}
        self._open: dict[
            int, tuple[int, Header, int]
        ] = {}  # rank → slot being filled, what it will hold, bytes that it has
        self._lock = (
            threading.Lock()
        )  # parts are written in threads, and a closed descriptor's number is soon another's

    def of(self, rank: int) -> list[int]:
        """The slots that are kept for a rank."""
        return self.slots.get(rank, [])

    def keep(self, chunk: Chunk) -> bool:
        """Write a part; the last one makes the copy valid. False when it is not wanted: the whole is there already."""
        with self._lock:
            if chunk.rank not in self.slots:
                self.slots[chunk.rank] = shared_memory.make()
            return self._write(chunk, self.slots[chunk.rank])

    def write(self, chunk: Chunk, fds: Sequence[int]) -> bool:
        """The same into these slots, which are not the keeper's."""
        with self._lock:
            return self._write(chunk, fds)

    def drop_all_but(self, ranks: Collection[int]) -> None:
        """Free what is kept for others than these ranks."""
        with self._lock:
            for rank in set(self.slots) - set(ranks):
                self._open.pop(rank, None)
                for fd in self.slots.pop(rank):
                    os.close(fd)

    def _write(self, chunk: Chunk, fds: Sequence[int]) -> bool:
        if chunk.start == shared_memory.START:
            if chunk.header in map(shared_memory.read_header, fds):
                return False
            fd = shared_memory.oldest(fds)
            shared_memory.empty(fd)
            shared_memory.stretch(fd, chunk.header.size)
            self._open[chunk.rank] = (fd, chunk.header, chunk.start)
        fd, header, filled = self._open.get(chunk.rank, (-1, chunk.header, -1))
        if (header, filled) != (chunk.header, chunk.start):
            raise Stale(f"rank {chunk.rank} goes on with a copy that it has not begun")
        os.pwrite(fd, chunk.data, chunk.start)
        self._open[chunk.rank] = (fd, header, filled + len(chunk.data))
        if chunk.last:
            shared_memory.seal(fd, header)
        return not chunk.last


def bell() -> tuple[socket.socket, socket.socket]:
    """The actor's end and the trainer's."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


class Bell:
    """The trainer's end."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._rung: tuple[int, float] | None = (
            None  # the newest snapshot that is not known to be copied, and since when
        )
        self._patience_s = PATIENCE_S
        self.cost_s = 0.0  # processor time of the last copy
        self.took_s = 0.0  # from the bell to its answer

    def ring(self, step: int) -> None:
        """The snapshot of `step` is sealed."""
        self._rung = (step, time.monotonic())
        with contextlib.suppress(OSError):
            self._end.send(_NEWS.pack(step, 0.0))

    def wait(self) -> None:
        """Until the newest snapshot is copied, or nobody takes it."""
        if self._rung is None:
            return
        self._patience_s = PATIENCE_S if self._answered(self._rung[0]) else 0.0
        self.took_s, self._rung = time.monotonic() - self._rung[1], None

    def _answered(self, step: int) -> bool:
        """Whether the answer to this step's bell comes in time; those to earlier ones are passed over."""
        deadline = time.monotonic() + self._patience_s
        with contextlib.suppress(OSError):  # a time-out is one
            while True:
                self._end.settimeout(max(deadline - time.monotonic(), 1e-3))
                news = self._end.recv(_NEWS.size)
                if not news:
                    return False
                told, self.cost_s = _NEWS.unpack(news)
                if told >= step:
                    return True
        return False


class Copying:
    """The actor's end: what its trainer seals in one generation it gives to the buddy, the newest first, one at a time."""

    def __init__(self, end: socket.socket, fds: Sequence[int], rank: int, warn: Callable[[str], None]) -> None:
        """`warn(text)`: for the rank's log."""
        self._end, self._fds, self._rank, self._warn = end, fds, rank, warn
        self._quiet_until = 0.0

    async def run(self, generation: int, buddy: Give, met: Callable[[], None]) -> None:
        """Until the trainer's end. `met()`: all ranks have met, their snapshots copied, since the first bell."""
        heard = 0
        while (step := await self._hear()) is not None:
            heard += 1
            if heard > 1:
                met()
            began = time.process_time()
            if time.monotonic() >= self._quiet_until:
                await self._copy(step, generation, buddy)
            with contextlib.suppress(OSError):
                self._end.send(_NEWS.pack(step, time.process_time() - began))

    async def _copy(self, step: int, generation: int, buddy: Give) -> None:
        async def give(chunk: Chunk) -> bool:
            async with asyncio.timeout(CHUNK_S):
                return await buddy(chunk)

        for fd in self._fds:
            header = shared_memory.read_header(fd)
            if header is not None and header.step == step:
                try:
                    await send(fd, self._rank, generation, give)
                except Exception as error:  # whatever ails the buddy must not stop the training
                    self._quiet_until = time.monotonic() + AGAIN_S
                    why = str(error).strip().splitlines() or [""]
                    self._warn(f"the snapshot of step {step} is not copied: {type(error).__name__}: {why[0]}")
                return

    async def _hear(self) -> int | None:
        """The newest bell; None at the trainer's end."""
        news = b""
        while not news:
            news = await asyncio.get_running_loop().sock_recv(self._end, _NEWS.size)
            if not news:
                return None
            with contextlib.suppress(BlockingIOError):
                while newer := self._end.recv(_NEWS.size):
                    news = newer
        return int(_NEWS.unpack(news)[0])


def buddies(places: Sequence[str | None]) -> list[int | None]:
    """For each rank the one that keeps its copies: on the next node, of those in a ring; None where there is one node.

    `places[rank]`: its node. The ranks of a node are spread over the next one's.
    """
    nodes = sorted({place for place in places if place is not None})
    if len(nodes) < 2:
        return [None] * len(places)
    ranks = {node: [rank for rank, place in enumerate(places) if place == node] for node in nodes}
    found: list[int | None] = [None] * len(places)
    for node, after in zip(nodes, nodes[1:] + nodes[:1], strict=True):
        for number, rank in enumerate(ranks[node]):
            found[rank] = ranks[after][number % len(ranks[after])]
    return found
