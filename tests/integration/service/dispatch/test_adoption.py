"""Leases: a job of a dead dispatcher goes to another one, and its events land exactly once."""

import asyncio
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from harness.databases import POSTGRESQL_IN_FULL
from harness.patience import PATIENCE_S

from shardyard.service.dispatch.admission import Admission, admit
from shardyard.service.dispatch.dispatcher import Dispatcher
from shardyard.service.dispatch.dispatcher_identity import Owner
from shardyard.service.jobs import submit as submitting
from shardyard.service.jobs.pause import pause
from shardyard.service.queries import jobs
from shardyard.service.schemas.cursor import Cursor
from shardyard.service.settings import Settings
from shardyard.service.states import State
from shardyard.service.store import jobs as job_rows
from shardyard.service.store import leases
from shardyard.service.store.engine import Store
from shardyard.service.store.leases import Lease

from ...inprocess_cluster import InProcessCluster, run_until_stopped
from .dispatching import dispatching, ended, eventually, reached, states, steps, submit, until


async def test_killed_dispatchers_lose_and_double_nothing(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    cluster.script = run_until_stopped
    job = await submit(store, settings, steps=1000)
    for life in range(6):
        async with dispatching(store, settings, cluster):
            seen = Cursor.parse((await jobs.get_job(store, job.id)).cursor)
            await until(
                store,
                job,
                lambda now, seen=seen, life=life: (
                    Cursor.parse(now.cursor).event > life or Cursor.parse(now.cursor).step > seen.step
                ),
            )
    gang = cluster.living[f"shardyard-{job.id}-1"]
    await submitting.cancel(store, job.id, "tester")
    async with dispatching(store, settings, cluster):
        job = await ended(store, job)
    reported = [event["data"]["step"] for event in gang.history if event["kind"] == "step"]
    assert await steps(store, job) == reported
    assert len(reported) > 3
    assert {spec.name for spec in cluster.specs} == {f"shardyard-{job.id}-1"}
    assert await states(store, job) == ["queued", "placing", "starting", "running", "cancelling", "cancelled"]


async def test_a_dead_dispatchers_job_is_taken_over_when_its_lease_expires(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    cluster.script = run_until_stopped
    settings = settings.model_copy(update={"lease_s": 1.0})
    job = await submit(store, settings)
    dead = Dispatcher(store, settings, cluster)
    dead._leave = _nothing  # type: ignore[method-assign]  # a process that is killed releases nothing
    task = asyncio.create_task(dead.run())
    await until(store, job, reached(State.RUNNING))
    killed = [task, *(each.task for each in dead._running.values())]
    for each in killed:
        each.cancel()
    await asyncio.gather(*killed, return_exceptions=True)
    before = Cursor.parse((await jobs.get_job(store, job.id)).cursor)
    async with dispatching(store, settings, cluster):
        await until(store, job, lambda now: Cursor.parse(now.cursor).step > before.step)
        await submitting.cancel(store, job.id, "tester")
        await ended(store, job)


async def _nothing() -> None:
    return None


@POSTGRESQL_IN_FULL
async def test_a_dispatcher_known_to_be_dead_is_not_waited_for(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    cluster.script = run_until_stopped
    job = await submit(store, settings)
    async with dispatching(store, settings, cluster):
        await until(store, job, reached(State.RUNNING))
    dead = replace(Owner.of_this_process(), started=1)
    async with store.write() as tx:
        assert await leases.take(tx, Lease(job.id, uuid4().hex, str(dead)), 3600.0)
    before = Cursor.parse((await jobs.get_job(store, job.id)).cursor)
    async with dispatching(store, settings, cluster):
        await until(store, job, lambda now: Cursor.parse(now.cursor).step > before.step)


async def test_two_dispatchers_share_the_queue_without_a_double_start(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    made = [await submit(store, settings, steps=5, name=f"job-{i}") for i in range(12)]
    async with dispatching(store, settings, cluster), dispatching(store, settings, cluster):
        for job in made:
            assert (await ended(store, job)).state == State.SUCCEEDED
    assert sorted(spec.name for spec in cluster.specs) == sorted(f"shardyard-{job.id}-1" for job in made)
    for job in made:
        assert await steps(store, job) == [1, 2, 3, 4, 5]


async def test_a_job_that_holds_no_devices_any_more_is_not_taken_over(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    """It was on the list of abandoned jobs, and has been paused, queued again or cancelled since."""
    queued, paused, over = [await submit(store, settings, name=name) for name in ("queued", "paused", "over")]
    await pause(store, paused.id, "tester")
    await submitting.cancel(store, over.id, "tester")
    dispatcher = Dispatcher(store, settings, cluster)
    await dispatcher._adopt([queued.id, paused.id, over.id])
    assert not dispatcher._running
    async with store.read() as tx:
        assert await leases.owners(tx) == []


@POSTGRESQL_IN_FULL
async def test_gangs_without_a_job_are_swept(store: Store, settings: Settings, cluster: InProcessCluster) -> None:
    cluster.script = run_until_stopped
    job = await submit(store, settings)
    async with dispatching(store, settings, cluster):
        await until(store, job, reached(State.RUNNING))
        spec = cluster.specs[0]
        over = await submit(store, settings, name="over", data=4)
        await submitting.cancel(store, over.id, "tester")
        for stray in (f"shardyard-{job.id}-0", "shardyard-job-unknown-1", f"shardyard-{over.id}-0"):
            await cluster.start_gang(type(spec)(stray, spec.run, 1, 1, "cpu", 0.0))
        await eventually(lambda: set(cluster.living) == {spec.name})


@POSTGRESQL_IN_FULL
async def test_gangs_of_another_control_plane_are_left_alone(
    store: Store, settings: Settings, cluster: InProcessCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.script = run_until_stopped
    shared = settings.model_copy(update={"ray_address": "127.0.0.1:6379"})
    job = await submit(store, settings)
    async with dispatching(store, shared, cluster):
        await until(store, job, reached(State.RUNNING))
        spec = cluster.specs[0]
        for name in (theirs := "shardyard-job-unknown-1", stray := f"shardyard-{job.id}-0"):
            await cluster.start_gang(type(spec)(name, spec.run, 1, 1, "cpu", 0.0))
        for _ in range(3):  # a dispatcher that looks again reports nothing twice
            await eventually(lambda: stray not in cluster.living)
            await cluster.start_gang(type(spec)(stray, spec.run, 1, 1, "cpu", 0.0))
        await eventually(lambda: set(cluster.living) == {spec.name, theirs})
    assert theirs not in cluster.closed
    assert sum(theirs in record.getMessage() for record in caplog.records) == 1


@POSTGRESQL_IN_FULL
async def test_a_dispatcher_that_ends_in_order_gives_its_leases_back(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    cluster.script = run_until_stopped
    job = await submit(store, settings)
    async with dispatching(store, settings, cluster):
        await until(store, job, reached(State.RUNNING))
    async with store.read() as tx:
        assert await leases.abandoned(tx, 10) == [job.id]
    assert cluster.living, "the gang lives on"


async def test_a_job_that_is_taken_while_the_dispatcher_ends_is_given_back_too(
    store: Store, settings: Settings, cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transaction that took it is cancelled while it commits: the lease is stored, and the dispatcher does not know it."""
    committed = asyncio.Event()

    async def committing(*given: Any) -> Admission:
        if (await admit(*given)).leases:
            committed.set()
            await asyncio.Event().wait()
        return Admission([], False)

    monkeypatch.setattr("shardyard.service.dispatch.dispatcher.admit", committing)
    job = await submit(store, settings)
    async with dispatching(store, settings, cluster), asyncio.timeout(PATIENCE_S):
        await committed.wait()
    async with store.read() as tx:
        assert await leases.abandoned(tx, 10) == [job.id]
    assert not cluster.specs


async def test_a_dispatcher_keeps_its_own_jobs_when_their_leases_have_run_out(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    """The database was away for longer than a lease lasts. No other dispatcher has taken the job meanwhile."""
    cluster.script = run_until_stopped
    job = await submit(store, settings)
    dispatcher = Dispatcher(store, settings, cluster)
    task = asyncio.create_task(dispatcher.run())
    try:
        await until(store, job, reached(State.RUNNING))
        before = list(dispatcher._running)
        async with store.write() as tx:
            assert await leases.renew(tx, before, -60.0) == set(before)
        await dispatcher._schedule()
        assert list(dispatcher._running) == before
        await dispatcher._renew()
        async with store.read() as tx:
            row = await job_rows.by_id(tx, job.id)
            assert await leases.abandoned(tx, 10) == []
        assert row is not None and [row["lease_token"]] == before
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_dispatcher_whose_lease_is_gone_stores_nothing_more(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    cluster.script = run_until_stopped
    job = await submit(store, settings)
    thief = Lease(job.id, uuid4().hex, "thief")
    async with dispatching(store, settings, cluster):
        await until(store, job, reached(State.RUNNING))
        async with store.write() as tx:
            row = await job_rows.by_id(tx, job.id)
            assert row is not None
            await leases.release(tx, [row["lease_token"]])
            assert await leases.take(tx, thief, 600.0)
        stolen, gang = await jobs.get_job(store, job.id), cluster.living[f"shardyard-{job.id}-1"]
        reported = len(gang.history)
        await eventually(lambda: len(gang.history) > reported + 20)
        assert (await jobs.get_job(store, job.id)).cursor == stolen.cursor
        async with store.write() as tx:
            await leases.release(tx, [thief.token])
        await until(store, job, lambda now: Cursor.parse(now.cursor).step > Cursor.parse(stolen.cursor).step)
    trained = [event["data"]["step"] for event in gang.history if event["kind"] == "step"]
    stored = await steps(store, job)
    assert stored == trained[: len(stored)]
