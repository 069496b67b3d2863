"""Whether events of ranks are pulled now: while the spool has room, and what trainers that have ended have left in any case.

That is at most what fits the buffers of their actors.
"""

import asyncio
import contextlib
from collections.abc import Iterator

from ..messages.event_buffer import Spool


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
