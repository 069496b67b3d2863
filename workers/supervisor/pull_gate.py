"""When events of ranks are taken in: while the spool has room, and what trainers that have ended have left in any case.

That is at most what fits the buffers of their actors.

A rank's steps wait for the ranks that are behind it. After a long absence of the dispatcher each rank has many, and those that some
ranks have yet to report are in every write of the journal.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final

from ..messages.event_buffer import Spool

#: Records of steps that may wait for other ranks, of all ranks together, about 250 bytes each. A rank waits for one that is further behind.
MOST_RECORDS: Final = 1 << 14
LEAST_STEPS: Final = 16


class PullGate:
    """One for all ranks of a gang."""

    def __init__(self, spool: Spool, world_size: int) -> None:
        self.most_steps = max(LEAST_STEPS, MOST_RECORDS // world_size)
        self._spool = spool
        self._held_open = asyncio.Event()
        self._taken: dict[int, int] = {}  # rank that is followed → its steps since then
        self._least = 0  # the least of these, or less if `_is_old`
        self._is_old = False
        self._moved = asyncio.Event()  # the slowest has gone on; another one is made then

    async def opens(self, wait_s: float) -> bool:
        """Wait at most `wait_s` until events may be pulled; returns whether they may."""
        if self._spool.full:
            either = (
                asyncio.ensure_future(self._spool.room(wait_s)),
                asyncio.ensure_future(self._held_open.wait()),
            )
            try:
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for one in either:
                    one.cancel()
        return self._held_open.is_set() or not self._spool.full

    @contextlib.contextmanager
    def held_open(self) -> Iterator[None]:
        """Within the block, when all trainers have ended: open though the spool is full."""
        self._held_open.set()
        try:
            yield
        finally:
            self._held_open.clear()

    @contextlib.contextmanager
    def following(self, rank: int) -> Iterator[None]:
        """Within the block the other ranks that are followed wait for this one."""
        self._taken[rank] = 0
        self._least, self._is_old = 0, True
        try:
            yield
        finally:
            self._taken.pop(rank, None)
            self._move()

    async def passes(self, rank: int, wait_s: float) -> bool:
        """Wait at most `wait_s` until a rank's next step may be taken in; returns whether it may. The slowest rank never waits."""
        deadline = asyncio.get_running_loop().time() + wait_s
        while self._is_far_ahead(rank):
            try:
                async with asyncio.timeout_at(deadline):
                    await self._moved.wait()
            except TimeoutError:
                return False
        before = self._taken.get(rank, 0)
        self._taken[rank] = before + 1
        if before == self._least:
            self._move()
        return True

    def _is_far_ahead(self, rank: int) -> bool:
        taken = self._taken.get(rank, 0)
        if self._is_old and taken - self._least >= self.most_steps:
            self._least, self._is_old = min(self._taken.values(), default=taken), False
        return taken - self._least >= self.most_steps

    def _move(self) -> None:
        self._is_old = True
        self._moved.set()
        self._moved = asyncio.Event()
