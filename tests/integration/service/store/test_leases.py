import asyncio
from collections.abc import Callable
from uuid import uuid4

from shardyard.service.dispatch.admission import admit
from shardyard.service.jobs.reshard import reshard
from shardyard.service.queries import jobs
from shardyard.service.schemas.cursor import Cursor
from shardyard.service.settings import Settings
from shardyard.service.spec import JobSpec
from shardyard.service.states import State
from shardyard.service.store import leases, nodes
from shardyard.service.store.engine import Store
from shardyard.service.store.leases import Lease

from ..conftest import Submit

NODE = {"id": "n1", "host": "h1", "alive": True, "cpu": 2.0, "gpu": 0.0, "cpu_used": 0.0, "gpu_used": 0.0}


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


async def test_two_dispatchers_never_give_the_same_devices_away(
    store: Store, database_url: str, settings: Settings, submit: Submit
) -> None:
    """A node of 8 CPU ranks, five jobs of two ranks, two dispatchers that decide at once: four jobs start."""
    async with store.write() as tx:
        await nodes.replace(tx, [{**NODE, "memory_bytes": 1, "seen_at": 0.0}])
    made = [await submit(ranks=2, name=f"job-{i}") for i in range(5)]
    other = Store(database_url)
    try:
        both = await asyncio.gather(admit(store, settings, "a", None), admit(other, settings, "b", None))
    finally:
        await other.close()
    assert sorted(lease.job_id for each in both for lease in each.leases) == [job.id for job in made[:4]]
    last = await jobs.get_job(store, made[4].id)
    assert (last.state, last.reason) == (State.QUEUED, "waiting_for_devices")
    assert last.message == "Needs 2 ranks, 0 of 8 CPU ranks are free; waiting for 2 more."


async def test_spares_hold_devices_too(store: Store, settings: Settings, submit: Submit) -> None:
    """A node of 8 CPU ranks: two jobs of 2 ranks and a spare start, and leave 2 slots, whether they are seen at once or later."""
    async with store.write() as tx:
        await nodes.replace(tx, [{**NODE, "memory_bytes": 1, "seen_at": 0.0}])
    made = [await submit(ranks=2, spares=1, name=f"job-{i}") for i in range(3)]
    for started in (made[:2], []):
        leases = (await admit(store, settings, "a", None)).leases
        assert [lease.job_id for lease in leases] == [job.id for job in started]
        last = await jobs.get_job(store, made[2].id)
        assert last.message == "Needs 2 ranks and 1 spare, 2 of 8 CPU ranks are free; waiting for 1 more."


async def test_a_gang_holds_its_devices_until_it_has_ended_whatever_layout_comes_next(
    store: Store, settings: Settings, spec: Callable[..., JobSpec], submit: Submit
) -> None:
    async with store.write() as tx:
        await nodes.replace(tx, [{**NODE, "memory_bytes": 1, "seen_at": 0.0}])
    large, small = await submit(ranks=8), await submit(ranks=4)
    assert [lease.job_id for lease in (await admit(store, settings, "a", None)).leases] == [large.id]
    await reshard(store, settings, large.id, spec(ranks=2), "tester")
    assert not (await admit(store, settings, "a", None)).leases
    now = await jobs.get_job(store, small.id)
    assert now.message == "Needs 4 ranks, 0 of 8 CPU ranks are free; waiting for 4 more."


async def test_waiting_is_told_once_and_not_at_every_look(store: Store, settings: Settings, submit: Submit) -> None:
    job = await submit(ranks=2)
    for _ in range(3):
        await admit(store, settings, "a", "The head is away.")
    now = await jobs.get_job(store, job.id)
    assert (now.reason, now.message, Cursor.parse(now.cursor).event) == ("cluster_unreachable", "The head is away.", 2)
