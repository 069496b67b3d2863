"""When events of ranks are taken in: while the spool has room, and what trainers that have ended have left in any case.

That is at most what fits the buffers of their actors.

Ranks take turns, as after a long absence of the dispatcher each has many steps, and those that some ranks have yet to report are in every
write of the journal. A turn ends with a write, which all ranks share. No rank waits for another one's steps: these may never come.
"""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from typing import Final

from ..messages.event_buffer import Event, Spool

#: Records of steps that all ranks take in together between two writes, about 250 bytes each, and the least of one rank.
MOST_RECORDS: Final = 1 << 14
LEAST_STEPS: Final = 16


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
