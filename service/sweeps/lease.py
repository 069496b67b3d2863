"""A dispatcher's lease of a sweep: prolonged while the dispatcher works, and checked where it stores something."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ..cancellation import check_cancelled
from ..database_errors import DatabaseError
from ..store import sweeps as rows
from ..store.engine import Store


class SweepLeaseLost(Exception):
    """Another dispatcher advances the sweep now."""


class SweepLeases:
    """The leases of one token, each of `seconds`."""

    def __init__(self, store: Store, token: str, seconds: float) -> None:
        self._store, self._token, self._seconds = store, token, seconds

    async def keep(self, sweep_id: str) -> str | None:
        """Prolong the lease when half of it is gone. Returns the sweep's state. Raises SweepLeaseLost if the lease is over."""
        async with self._store.read() as tx:
            left, state = await rows.left(tx, sweep_id, self._token), await rows.state(tx, sweep_id)
        if left < self._seconds / 2 and not await self._prolong(sweep_id):
            raise SweepLeaseLost(f"the lease of {sweep_id} has expired")
        return state

    @asynccontextmanager
    async def kept(self, sweep_id: str) -> AsyncIterator[None]:
        """Prolong the lease meanwhile: the checks of a submission, or Optuna, may take longer than it lasts."""

        async def prolong() -> None:
            prolonged = True
            while prolonged:  # what follows finds out that the lease is over
                check_cancelled()
                await asyncio.sleep(self._seconds / 3)
                with suppress(DatabaseError):  # the next try is before the lease is over
                    prolonged = await self._prolong(sweep_id)

        prolonging = asyncio.create_task(prolong())
        try:
            yield
        finally:
            prolonging.cancel()
            await asyncio.wait({prolonging})

    async def locked(self, tx: AsyncConnection, sweep_id: str) -> RowMapping:
        """The sweep, locked until the transaction's end. Raises SweepLeaseLost."""
        row = await rows.lock(tx, sweep_id, self._token)
        if row is None:
            raise SweepLeaseLost(f"another dispatcher advances {sweep_id}")
        return row

    async def _prolong(self, sweep_id: str) -> bool:
        async with self._store.write() as tx:
            return await rows.prolong(tx, sweep_id, self._token, self._seconds)
