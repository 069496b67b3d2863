"""Advances the sweeps that this dispatcher holds, and takes over those that no dispatcher does."""

import logging
from typing import Final
from uuid import uuid4

from ..settings import Settings
from ..store import sweeps as rows
from ..store.engine import Store
from ..sweeps.advance import Advance, SweepLeaseLost

log = logging.getLogger(__name__)

#: Number of sweeps that are read at a time.
_PAGE: Final = 100


class SweepRunner:
    def __init__(self, store: Store, settings: Settings) -> None:
        self._store, self._settings = store, settings
        self._token = uuid4().hex
        self._advance = Advance(store, settings, self._token)

    async def run_once(self) -> bool:
        """Advance every sweep by a step. Returns whether the queue may have changed. Raises DatabaseError."""
        changed, after, known = False, "", []
        while True:
            async with self._store.read() as tx:
                found = await rows.to_advance(tx, self._token, _PAGE, after)
            for row in found:
                known.append(row["id"])
                if row["held"] or await self._take(row["id"]):
                    try:
                        changed |= await self._advance.advance(row)
                    except SweepLeaseLost as error:
                        log.info("%s", error)
            if len(found) < _PAGE:
                break
            after = found[-1]["id"]
        self._advance.forget(known)
        return changed

    async def _take(self, sweep_id: str) -> bool:
        async with self._store.write() as tx:
            return await rows.take(tx, sweep_id, self._token, self._settings.lease_s)

    async def leave(self) -> None:
        """Let other dispatchers take the sweeps at once."""
        async with self._store.write() as tx:
            await rows.release(tx, self._token)
