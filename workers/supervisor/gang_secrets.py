"""The secrets of a gang, in its supervisor's memory only. The dispatcher sends them when a rank needs them, and again to a successor.

A repair gives ranks those that are here: it needs no dispatcher.
"""

import asyncio
from collections.abc import Sequence

from ..messages.secret import Secret


class GangSecrets:
    """Waits for the dispatcher if they are needed and not here."""

    def __init__(self, needed: bool) -> None:
        """`needed`: the job has secrets."""
        self._values: Sequence[Secret] | None = None if needed else ()
        self._arrived = asyncio.Event()
        self._missed = asyncio.Event()

    @property
    def missed(self) -> bool:
        """Whether a rank waits for them."""
        return self._missed.is_set()

    async def until_missed(self) -> None:
        await self._missed.wait()

    @property
    def now(self) -> Sequence[Secret] | None:
        """They, or None if they are not here."""
        return self._values

    def provide(self, values: Sequence[Secret]) -> None:
        self._values = values
        self._arrived.set()
        self._missed.clear()

    async def values(self) -> Sequence[Secret]:
        """They, as soon as they are here."""
        while self._values is None:
            self._missed.set()
            await self._arrived.wait()
        return self._values
