"""When events of ranks are taken in: while the spool has room, and what trainers that have ended have left in any case.

That is at most what fits the buffers of their actors. While the spool is more than half full, ranks that waited for room pull one after
another: of a thousand answers of a megabyte each, which all waited, few would have room.

Ranks take turns, as after a long absence of the dispatcher each has many steps, and those that some ranks have yet to report are in every
write of the journal. A turn ends with a write, which all ranks share. No rank waits for another one's steps: these may never come.
"""

import asyncio
import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Final

from ..messages.event_buffer import Event, Spool

#: Records of steps that all ranks take in together between two writes, about 250 bytes each, and the least of one rank.
MOST_RECORDS: Final = 1 << 14
LEAST_STEPS: Final = 16
#: Seconds from one rank that waited to the next. Its answer may take longer; so some are on their way when the spool is full again.
APART_S: Final = 0.02


def steps_of_a_turn(world_size: int) -> int:
    """The most steps of one rank between two writes of the journal."""
    return max(LEAST_STEPS, MOST_RECORDS // world_size)


def turns(events: Sequence[Event], most_steps: int) -> Iterator[list[Event]]:
    """The events in order, in lists with at most `most_steps` steps each; one empty list if there are none."""
    turn: list[Event] = []
    steps = 0
    for event in events:
        if event["kind"] == "step":
            if steps == most_steps:
                yield turn
                turn, steps = [], 0
            steps += 1
        turn.append(event)
    yield turn


class PullGate:
    """One for all ranks of a gang."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._held_open = asyncio.Event()
        self._queue = asyncio.Lock()  # of ranks that wait
        self._next_at = 0.0  # not before; of `time.monotonic`

    @property
    def is_open(self) -> bool:
        """Whether events that were pulled may be taken in."""
        return self._held_open.is_set() or not self._spool.full

    async def opens(self, wait_s: float) -> bool:
        """Wait at most `wait_s` until events may be pulled; returns whether they may."""
        if self.is_open and not (self._spool.half_full and self._queue.locked()):
            return True
        either = (
            asyncio.ensure_future(self._has_turn(wait_s)),
            asyncio.ensure_future(self._held_open.wait()),
        )
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in either:
                one.cancel()
        return self._held_open.is_set() or (either[0].done() and either[0].result())

    async def _has_turn(self, wait_s: float) -> bool:
        """Whether within `wait_s` there is room, and this rank is the next to pull."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s), self._queue:
                await asyncio.sleep(self._next_at - time.monotonic())
                if await self._spool.room(wait_s):
                    self._next_at = time.monotonic() + (APART_S if self._spool.half_full else 0.0)
                    return True
        return False

    @contextlib.contextmanager
    def held_open(self) -> Iterator[None]:
        """Within the block, when all trainers have ended: open though the spool is full."""
        self._held_open.set()
        try:
            yield
        finally:
            self._held_open.clear()
