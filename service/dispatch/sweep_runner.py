"""Advances the sweeps that this dispatcher holds, and takes over those that no dispatcher does."""

import logging
import time
from collections.abc import Collection, Sequence
from typing import Final
from uuid import uuid4

from sqlalchemy.engine import RowMapping

from ..database_errors import DatabaseError
from ..failure_log import FailureLog
from ..settings import Settings
from ..store import sweeps as rows
from ..store.engine import Store
from ..sweeps.advance import Advance
from ..sweeps.lease import SweepLeaseLost

log = logging.getLogger(__name__)

#: Number of sweeps that are read at a time.
_PAGE: Final = 100


class SweepRunner:
    def __init__(self, store: Store, settings: Settings) -> None:
        self._store, self._settings = store, settings
        self._token = uuid4().hex
        self._failures = FailureLog(log)
        self._broken: set[str] = set()  # sweeps that could not be advanced the last time
        self._advance = Advance(store, settings, self._token)

    async def run_once(self) -> bool:
        """Advance every sweep by a step. Returns whether the queue may have changed. Raises DatabaseError."""
        changed, after, known = False, "", []
        self._broken.clear()
        while True:
            begun = time.monotonic()
            async with self._store.read() as tx:
                found = await rows.to_advance(tx, self._token, _PAGE, after, lease_s=self._settings.lease_s)
            held = {row["id"] for row in found if row["held"] or await self._take(row["id"])}
            busy = await self._busy(held)  # after the leases are taken, as others change trials before
            for row in found:
                known.append(row["id"])
                if row["id"] in held:
                    late = time.monotonic() - begun > self._settings.lease_s / 4
                    changed |= await (self._late_step(row["id"]) if late else self._step(row, busy.get(row["id"], [])))
            if len(found) < _PAGE:
                break
            after = found[-1]["id"]
        self._advance.forget(known)
        if not self._broken:
            for cause in self._failures.failing:
                self._failures.works(cause, f"Every sweep is advanced again [{cause}].")
        return changed

    async def _busy(self, sweep_ids: Collection[str]) -> dict[str, list[RowMapping]]:
        """Sweep → its rows of `rows.busy`, of all in one statement: most sweeps have no news most of the time."""
        found: dict[str, list[RowMapping]] = {}
        if sweep_ids:
            async with self._store.read() as tx:
                for one in await rows.busy(tx, sorted(sweep_ids)):
                    found.setdefault(one["sweep_id"], []).append(one)
        return found

    async def _late_step(self, sweep_id: str) -> bool:
        """Advance a sweep that has waited for others: take its lease once more, which may be another dispatcher's by now, and read it."""
        if not await self._take(sweep_id):
            return False
        async with self._store.read() as tx:
            row = await rows.by_id(tx, sweep_id)
        busy = await self._busy([sweep_id])
        return row is not None and await self._step(row, busy.get(sweep_id, []))

    async def _step(self, row: RowMapping, busy: Sequence[RowMapping]) -> bool:
        """Advance one sweep. A sweep that cannot be advanced stops no other."""
        try:
            changed = await self._advance.advance(row, busy)
            await self._note(row, None)
            return changed
        except SweepLeaseLost as error:
            log.info("%s", error)
            return False
        except DatabaseError:
            raise
        except Exception as error:  # noqa: BLE001  the outermost loop over sweeps
            self._broken.add(row["id"])
            self._failures.failed(type(error).__name__, f"{row['id']} could not be advanced; it is tried again", error)
            # Not the error's text: it may quote what users gave, and all users read this.
            cause = (
                f"It cannot be advanced ({type(error).__name__}), and is tried again. The dispatcher's log says why."
            )
            await self._note(row, cause)
            return False

    async def _note(self, row: RowMapping, message: str | None) -> None:
        if row["message"] != message:
            async with self._store.write() as tx:
                await rows.note(tx, row["id"], self._token, message)

    async def _take(self, sweep_id: str) -> bool:
        """Prolong the lease, or take it. False: another dispatcher holds it."""
        async with self._store.write() as tx:
            if await rows.prolong(tx, sweep_id, self._token, self._settings.lease_s):
                return True
            # Another dispatcher may have held it since this one did, and have stored what this one has not seen.
            self._advance.look_again(sweep_id)
            return await rows.take(tx, sweep_id, self._token, self._settings.lease_s)

    async def leave(self) -> None:
        """Let other dispatchers take the sweeps at once."""
        async with self._store.write() as tx:
            await rows.release(tx, self._token)
