"""Renews the leases of a dispatcher's jobs and operations, and ends the work whose lease another dispatcher has.

A lease that was lost is noticed here first, and again at each write: what is learnt without a lease is not stored.
"""

import asyncio
from collections.abc import Collection, Mapping
from typing import Any, Final, Protocol

from sqlalchemy.ext.asyncio import AsyncConnection

from ..store.engine import Store

#: Tries before a lease expires: one that fails, as while the database restarts, costs nothing.
_TRIES: Final = 3


class Extend(Protocol):
    """SQL that makes leases last this long from now. Returns the tokens of those that are still in force."""

    async def __call__(self, tx: AsyncConnection, tokens: Collection[str], seconds: float) -> set[str]: ...


def renewal_interval_s(lease_s: float) -> float:
    """Seconds between two renewals."""
    return lease_s / _TRIES


async def renew(store: Store, extend: Extend, running: Mapping[str, "asyncio.Task[Any]"], lease_s: float) -> None:
    """Renew the leases whose tokens are the keys of `running`. Cancels the tasks of those that are lost. Raises DatabaseError."""
    tasks = dict(running)
    if not tasks:
        return
    async with store.write() as tx:
        held = await extend(tx, tasks.keys(), lease_s)
    for token in tasks.keys() - held:
        tasks[token].cancel()
