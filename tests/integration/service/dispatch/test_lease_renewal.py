"""Leases that are in force are extended; work whose lease another dispatcher has taken is cancelled, and no other work."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection
from uuid import uuid4

import pytest
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from shardyard.service.dispatch.lease_renewal import renew, renewal_interval_s
from shardyard.service.store import jobs as job_rows
from shardyard.service.store import leases
from shardyard.service.store.engine import Store
from shardyard.service.store.leases import Lease
from shardyard.service.store.tables import jobs

from ..conftest import Submit


@contextlib.asynccontextmanager
async def working(*tokens: str) -> AsyncIterator[dict[str, "asyncio.Task[bool]"]]:
    """Tasks by token that work until they are cancelled."""
    tasks = {token: asyncio.create_task(asyncio.Event().wait(), name=token) for token in tokens}
    try:
        yield tasks
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)


async def taken(store: Store, job_id: str, owner: str, seconds: float) -> Lease:
    lease = Lease(job_id, uuid4().hex, owner)
    async with store.write() as tx:
        assert await leases.take(tx, lease, seconds)
    return lease


async def until(store: Store, job_id: str) -> float:
    async with store.read() as tx:
        return float((await tx.execute(select(jobs.c.lease_until).where(jobs.c.id == job_id))).scalar_one())


async def test_a_lease_in_force_is_extended_and_its_work_goes_on(store: Store, submit: Submit) -> None:
    job = await submit()
    lease = await taken(store, job.id, "me", 600.0)
    before = await until(store, job.id)
    async with working(lease.token) as tasks:
        await renew(store, leases.renew, tasks, 3600.0)
        assert await until(store, job.id) > before + 1000.0
        assert not tasks[lease.token].cancelling()


async def test_work_whose_lease_is_lost_is_cancelled_alone(store: Store, submit: Submit) -> None:
    mine, other = await submit(), await submit(name="other")
    lost = await taken(store, mine.id, "me", -1.0)  # it ran out a second ago
    held = await taken(store, other.id, "me", 600.0)
    await taken(store, mine.id, "another", 600.0)
    async with working(lost.token, held.token) as tasks:
        await renew(store, leases.renew, tasks, 600.0)
        with pytest.raises(asyncio.CancelledError):
            await tasks[lost.token]
        assert not tasks[held.token].cancelling()


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
async def test_a_row_that_stays_locked_costs_no_other_lease(store: Store, submit: Submit) -> None:
    """The others are renewed while the row is locked; its own work goes on, as no other dispatcher can take it."""
    stuck, free = await submit(), await submit(name="other")
    locked, held = await taken(store, stuck.id, "me", 600.0), await taken(store, free.id, "me", 600.0)
    before = await until(store, stuck.id), await until(store, free.id)
    async with working(locked.token, held.token) as tasks, store.write() as holder:
        assert await job_rows.lock(holder, stuck.id) is not None
        await renew(store, leases.renew, tasks, 0.6)
        assert await until(store, stuck.id) == before[0]
        assert await until(store, free.id) < before[1]
        assert not any(task.cancelling() for task in tasks.values())


async def test_without_work_no_transaction_begins(store: Store) -> None:
    async def extend(
        tx: AsyncConnection, tokens: Collection[str], seconds: float, *, skip_locked: bool = False
    ) -> set[str]:
        raise AssertionError("nothing is held")

    await renew(store, extend, {}, 600.0)


def test_two_renewals_may_fail_before_a_lease_expires() -> None:
    assert 2 * renewal_interval_s(30.0) < 30.0
