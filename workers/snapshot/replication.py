"""Copies of snapshots on another node, so that the death of a node loses no more than the death of a trainer.

Rules that it keeps: a copy is complete or absent: its holder seals it last, and never what changed while it was read. A rank overwrites its
older snapshot only when the newer one is copied; ranks meet in between, so that whichever node dies, one step is in every rank's snapshots
or copies. A trainer waits for a copy for a limited time, so that a peer that is gone does not stop the training.

When a snapshot is sealed, the trainer notifies its actor over a pair of sockets. The actor copies it to its replication peer, the actor
of a rank on another node, and answers. Imports neither torch nor Ray: both the trainer and the actor use it.
"""

import asyncio
import contextlib
import os
import socket
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from . import shared_memory
from .header import segment_of
from .shared_memory import Header

#: Bytes of one chunk: it passes through the memory of two actors and of Ray's object store.
CHUNK: Final = 4 << 20
#: A peer that needs more than `CHUNK_S` seconds for a chunk counts as gone; it is tried again after `AGAIN_S` seconds.
CHUNK_S: Final = 10.0
AGAIN_S: Final = 30.0
#: Seconds for which a trainer waits for its actor's next message before it trains on. While it copies, the actor sends one every
#: `ALIVE_S` seconds at most, and before the next chunk is late.
ANSWER_S: Final = 60.0
ALIVE_S: Final = 1.0
#: Seconds for which a trainer waits for one copy: less than the usual time limits of a hang, and of collectives in which others wait.
COPY_S: Final = 300.0
#: The step of a snapshot, and in the answer the seconds of processor time that its copy took. Step 0: it is still being copied.
_MESSAGE: Final = struct.Struct("<Qd")


class Stale(RuntimeError):
    """A call from an actor of an earlier generation, which lost its connection and still runs."""


@dataclass(frozen=True)
class Chunk:
    """A part of one rank's snapshot, from byte `start` of its segment."""

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
    """Send a segment's content chunk by chunk; returns False if it is empty or changed meanwhile. Raises what `give` raises.

    `give` returns whether to continue.
    """
    header, start, more = shared_memory.read_header(fd), shared_memory.START, True
    while header is not None and more and start < header.size:
        data = os.pread(fd, min(CHUNK, header.size - start), start)
        if shared_memory.read_header(fd) != header:
            return False
        more = await give(Chunk(rank, generation, header, start, data))
        start += len(data)
    return header is not None


class ReplicaStore:
    """The copies that an actor holds for other ranks: two segments per rank."""

    def __init__(self) -> None:
        self.segments: dict[int, list[int]] = {}
        self._open: dict[
            int, tuple[int, Header, int]
        ] = {}  # rank → segment being filled, its header when complete, bytes written
        self._lock = threading.Lock()  # threads write chunks, and the number of a closed descriptor is soon reused

    def of(self, rank: int) -> list[int]:
        """The segments of a rank's copies."""
        return self.segments.get(rank, [])

    def sizes(self) -> list[tuple[int, int]]:
        """Each rank with copies here, and the bytes of memory that they have."""
        with self._lock:
            return [(rank, sum(map(shared_memory.allocated, fds))) for rank, fds in self.segments.items()]

    def write(self, chunk: Chunk) -> bool:
        """Write a chunk; the last one seals the copy. Returns whether to continue: False after the last one, or if the copy is complete."""
        with self._lock:
            if chunk.rank not in self.segments:
                self.segments[chunk.rank] = shared_memory.allocate()
            return self._write(chunk, self.segments[chunk.rank])

    def write_into(self, chunk: Chunk, fds: Sequence[int]) -> bool:
        """The same as `write`, into these segments, which this store does not own."""
        with self._lock:
            return self._write(chunk, fds)

    def drop_except(self, ranks: Collection[int]) -> None:
        """Free the copies of all ranks but these."""
        with self._lock:
            for rank in set(self.segments) - set(ranks):
                self._open.pop(rank, None)
                for fd in self.segments.pop(rank):
                    os.close(fd)

    def empty_after(self, step: int) -> None:
        """Mark the copies of later steps than `step` as empty, and end those that are being written."""
        with self._lock:
            self._open.clear()
            for fds in self.segments.values():
                shared_memory.empty_after(fds, step)

    def _write(self, chunk: Chunk, fds: Sequence[int]) -> bool:
        if chunk.start == shared_memory.START:
            if chunk.header in map(shared_memory.read_header, fds):
                return False
            fd = shared_memory.oldest(fds)
            shared_memory.empty(fd)
            self._open[chunk.rank] = (fd, chunk.header, chunk.start)
        fd, header, filled = self._open.get(chunk.rank, (-1, chunk.header, -1))
        if (header, filled) != (chunk.header, chunk.start):
            raise Stale(f"rank {chunk.rank} continues a copy that it has not begun")
        # Memory for this chunk alone: that of a whole segment may take longer than `CHUNK_S`, and others need the lock.
        shared_memory.reserve(fd, chunk.start + len(chunk.data))
        os.pwrite(fd, chunk.data, chunk.start)
        self._open[chunk.rank] = (fd, header, filled + len(chunk.data))
        if chunk.last:
            shared_memory.seal(fd, header)
        return not chunk.last


def notifier_pair() -> tuple[socket.socket, socket.socket]:
    """A connected pair of sockets: the actor's end, and the trainer's."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


class SnapshotNotifier:
    """The trainer's end: it announces sealed snapshots and waits for their copies.

    After an actor that was silent it waits no more until there is a message, which may be a late answer; after a copy that took longer than
    `COPY_S`, until there is an answer.
    """

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._announced: tuple[int, float] | None = (
            None  # the newest snapshot without an answer: its step, and when it was announced
        )
        self._answer_s = ANSWER_S
        self._is_slow = False  # whether the copy of which it waits for no answer took longer than `COPY_S`
        self.cost_s = 0.0  # processor time of the last copy
        self.took_s = 0.0  # from the notification to its answer; no less than a wait in vain

    def notify(self, step: int) -> None:
        """Announce that the snapshot of `step` is sealed."""
        self._announced = (step, time.monotonic())
        with contextlib.suppress(OSError):
            self._end.send(_MESSAGE.pack(step, 0.0))

    def wait(self) -> None:
        """Wait until the newest snapshot is copied, or until the time for its copy is over."""
        if self._announced is None:
            return
        (step, since), self._announced = self._announced, None
        answered = self._answered(step, since + COPY_S)
        took_s = time.monotonic() - since
        self.took_s = took_s if answered else max(took_s, self.took_s)
        if not answered and self._answer_s:
            self._answer_s, self._is_slow = 0.0, took_s >= COPY_S
            text = f"the snapshot of step {step} has no copy on another node after {took_s:.0f} s: the training goes on"
            print(text, flush=True)  # noqa: T201  (a trainer's standard output is its log)

    def _answered(self, step: int, latest: float) -> bool:
        """Whether the answer for this step comes in time. Other messages show that the actor lives."""
        deadline = time.monotonic() + self._answer_s
        with contextlib.suppress(OSError):  # includes TimeoutError
            while True:
                self._end.settimeout(max(min(deadline, latest) - time.monotonic(), 1e-3))
                message = self._end.recv(_MESSAGE.size)
                if not message:
                    return False
                copied, cost_s = _MESSAGE.unpack(message)
                if copied:
                    self.cost_s, self._is_slow = cost_s, False
                if not self._is_slow:
                    self._answer_s, deadline = ANSWER_S, time.monotonic() + ANSWER_S
                if copied >= step:
                    return True
        return False


class Replicator:
    """The actor's end: sends what its trainer seals in one generation to the peer, one snapshot at a time, the newest first."""

    def __init__(self, end: socket.socket, fds: Sequence[int], rank: int, warn: Callable[[str], None]) -> None:
        """`warn(text)` adds a line to the rank's log."""
        self._end, self._fds, self._rank, self._warn = end, fds, rank, warn
        self._quiet_until = self._alive_at = 0.0

    async def run(self, generation: int, give: Give, met: Callable[[], None]) -> None:
        """Returns when the trainer has ended. Calls `met()` when all ranks have met with copied snapshots, since the first notification."""
        received = 0
        while (step := await self._receive()) is not None:
            received += 1
            if received > 1:
                met()
            began = time.process_time()
            if time.monotonic() >= self._quiet_until:
                await self._copy(step, generation, give)
            self._send(step, time.process_time() - began)

    def _send(self, step: int, cost_s: float) -> None:
        """Without effect if the trainer has ended, or does not read: it reads before it waits again."""
        self._alive_at = time.monotonic()
        with contextlib.suppress(OSError):
            self._end.send(_MESSAGE.pack(step, cost_s))

    async def _copy(self, step: int, generation: int, to_peer: Give) -> None:
        async def give(chunk: Chunk) -> bool:
            async with asyncio.timeout(CHUNK_S):
                more = await to_peer(chunk)
            if time.monotonic() >= self._alive_at + ALIVE_S:
                self._send(0, 0.0)
            return more

        why = "it was overwritten meanwhile"
        try:
            fd = segment_of(self._fds, step)
            if fd is not None and await send(fd, self._rank, generation, give):
                return
        except Exception as error:  # noqa: BLE001  # the background task: an error of the peer must not stop the training
            self._quiet_until = time.monotonic() + AGAIN_S
            why = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
        self._warn(f"the snapshot of step {step} is not copied: {why}")

    async def _receive(self) -> int | None:
        """The step of the newest announced snapshot; None if the trainer has ended."""
        message = b""
        while not message:
            message = await asyncio.get_running_loop().sock_recv(self._end, _MESSAGE.size)
            if not message:
                return None
            with contextlib.suppress(BlockingIOError):
                while newer := self._end.recv(_MESSAGE.size):
                    message = newer
        return int(_MESSAGE.unpack(message)[0])


def replication_peers(places: Sequence[str | None]) -> list[int | None]:
    """For each rank the rank that holds its copies, on the next node of a ring; None if there is only one node.

    `places[rank]`: its node. The ranks of a node are spread over those of the next node.
    """
    ranks: dict[str, list[int]] = defaultdict(list)
    for rank, place in enumerate(places):
        if place is not None:
            ranks[place].append(rank)
    nodes = sorted(ranks)
    if len(nodes) < 2:
        return [None] * len(places)
    found: list[int | None] = [None] * len(places)
    for node, after in zip(nodes, nodes[1:] + nodes[:1], strict=True):
        for number, rank in enumerate(ranks[node]):
            found[rank] = ranks[after][number % len(ranks[after])]
    return found
