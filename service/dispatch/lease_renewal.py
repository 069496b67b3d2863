"""Renews the leases of a dispatcher's jobs and operations, and ends the work whose lease another dispatcher has.

A lease that was lost is noticed here first, and again at each write: what is learnt without a lease is not stored.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import Any, Final, Protocol

from sqlalchemy.ext.asyncio import AsyncConnection

from ..database_errors import DatabaseBusy
from ..store.dialect import limit_lock_wait
from ..store.engine import Store

log = logging.getLogger(__name__)

#: Tries before a lease expires: one that fails, as while the database restarts, costs nothing.
_TRIES: Final = 3


class Extend(Protocol):
    """SQL that makes leases last this long from now. Returns the tokens of those that are still in force.

    `skip_locked`: it leaves out rows that another transaction has locked.
    """

    async def __call__(
        self, tx: AsyncConnection, tokens: Collection[str], seconds: float, *, skip_locked: bool = False
    ) -> set[str]: ...


def renewal_interval_s(lease_s: float) -> float:
    """Seconds between two renewals."""
    return lease_s / _TRIES


async def renew(store: Store, extend: Extend, running: Mapping[str, "asyncio.Task[Any]"], lease_s: float) -> None:
    """Renew the leases whose tokens are the keys of `running`. Cancels the tasks of those that are lost. Raises DatabaseError.

    A row that stays locked, as by a process that has vanished, must not cost the leases of all other jobs. So those that are free
    are renewed first, in one statement, and then each of the rest, within one interval in all.
    """
    tasks = dict(running)
    if not tasks:
        return
    async with store.write() as tx:
        held = await extend(tx, tasks.keys(), lease_s, skip_locked=True)
    rest = tasks.keys() - held  # locked, or lost
    for token in rest:
        if not await _renewed(store, extend, token, lease_s, renewal_interval_s(lease_s) / len(rest)):
            tasks[token].cancel()


async def _renewed(store: Store, extend: Extend, token: str, lease_s: float, wait_s: float) -> bool:
    """Whether a lease is in force. It is while its row stays locked for `wait_s` seconds: no other dispatcher can take it meanwhile."""
    try:
        async with store.write() as tx:
            await limit_lock_wait(tx, wait_s)
            return bool(await extend(tx, [token], lease_s))
    except DatabaseBusy as error:
        log.warning("a lease waits to be renewed: another transaction has locked its row (%s)", error.detail)
        return True
