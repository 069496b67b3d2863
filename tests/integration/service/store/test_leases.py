"""One dispatcher holds the lease of a job; an expired lease can be taken and is not renewed."""

import asyncio
from uuid import uuid4

from shardyard.service.states import HOLDING, State
from shardyard.service.store import jobs as job_rows
from shardyard.service.store import leases
from shardyard.service.store.engine import Store
from shardyard.service.store.leases import Lease

from ..conftest import Submit


async def _take(store: Store, lease: Lease, seconds: float = 600.0) -> bool:
    async with store.write() as tx:
        return await leases.take(tx, lease, seconds)


def _lease(job_id: str, owner: str) -> Lease:
    return Lease(job_id, uuid4().hex, owner)


async def test_of_many_dispatchers_one_gets_the_row(store: Store, database_url: str, submit: Submit) -> None:
    job = await submit()
    others = [Store(database_url) for _ in range(4)]
    try:
        takes = [_take(each, _lease(job.id, f"dispatcher {i}")) for i, each in enumerate([store, *others])]
        assert sorted(await asyncio.gather(*takes)) == [False, False, False, False, True]
    finally:
        for other in others:
            await other.close()


async def test_an_expired_lease_can_be_taken_and_then_not_renewed(store: Store, submit: Submit) -> None:
    job = await submit()
    old, new = _lease(job.id, "old"), _lease(job.id, "new")
    assert await _take(store, old)
    assert not await _take(store, new)
    async with store.write() as tx:
        assert await leases.renew(tx, [old.token], -1.0) == {old.token}  # it ran out a second ago
    assert await _take(store, new)
    async with store.write() as tx:
        assert await leases.renew(tx, [old.token, new.token], 600.0) == {new.token}
        await leases.release(tx, [old.token])  # releases nothing: it is not its any more
    assert not await _take(store, old)


async def test_a_job_is_taken_only_in_the_expected_states(store: Store, submit: Submit) -> None:
    job = await submit()
    async with store.write() as tx:
        assert not await leases.take(tx, _lease(job.id, "a"), 600.0, HOLDING)
        await job_rows.set_columns(tx, job.id, {"state": State.PLACING})
        assert not await leases.take(tx, _lease(job.id, "a"), 600.0, {State.QUEUED})
        assert await leases.take(tx, _lease(job.id, "a"), 600.0, HOLDING)


async def test_a_job_is_taken_only_if_nothing_has_happened_to_it(store: Store, submit: Submit) -> None:
    job = await submit()
    async with store.write() as tx:
        row = await job_rows.by_id(tx, job.id)
        assert row is not None
        await job_rows.take_positions(tx, job.id, "event_pos", 1)
        assert not await leases.take(tx, _lease(job.id, "a"), 600.0, event_pos=row["event_pos"])
        assert await leases.take(tx, _lease(job.id, "a"), 600.0, event_pos=row["event_pos"] + 1)
