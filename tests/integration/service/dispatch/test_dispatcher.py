"""The dispatcher over real databases and a cluster without Ray: it reads in one transaction and starts jobs in order."""

import asyncio
import time

from sqlalchemy import event

from shardyard.service.dispatch.dispatcher import Dispatcher
from shardyard.service.jobs import submit as submitting
from shardyard.service.settings import Settings
from shardyard.service.states import State
from shardyard.service.store.engine import Store

from ...inprocess_cluster import Gang, InProcessCluster, run_until_stopped, train
from .dispatching import dispatching, ended, reached, submit, until


def transactions(store: Store) -> list[float]:
    """Gets an entry for each transaction that this store begins from now on."""
    begun: list[float] = []
    for engine in {store._engines.writing.sync_engine, store._engines.reading.sync_engine}:
        event.listen(engine, "begin", lambda _: begun.append(time.monotonic()))
    return begun


async def test_a_look_at_the_database_is_one_transaction(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    """Twice a second beside gangs that train: whatever is asked of the dispatcher, it reads at once."""

    async def silent(gang: Gang) -> None:
        await gang.state("starting")
        await gang.state("running")
        await gang.stopped.wait()

    cluster.script = silent
    dispatcher = Dispatcher(store, settings.model_copy(update={"fault_injection": True}), cluster)
    job = await submit(store, settings, steps=1000)
    await dispatcher._watch_nodes()
    await dispatcher._schedule()
    await until(store, job, reached(State.RUNNING))
    begun = transactions(store)
    await dispatcher._schedule()
    assert len(begun) == 1
    await dispatcher._leave()


async def test_jobs_wait_in_order_and_get_a_reason(store: Store, settings: Settings, cluster: InProcessCluster) -> None:
    cluster.script = run_until_stopped
    first = await submit(store, settings, data=2)
    large = await submit(store, settings, data=4)
    small = await submit(store, settings, data=1)
    async with dispatching(store, settings, cluster):
        large = await until(store, large, lambda now: now.reason == "waiting_for_devices")
        assert large.message == "Needs 4 ranks, 2 of 4 CPU ranks are free; waiting for 2 more."
        small = await until(store, small, lambda now: now.reason == "waiting_for_turn")
        await until(store, first, reached(State.RUNNING))
        assert {spec.name for spec in cluster.specs} == {f"shardyard-{first.id}-1"}
        cluster.script = train
        await submitting.cancel(store, first.id, "tester")
        assert (await ended(store, large)).state == State.SUCCEEDED
        assert (await ended(store, small)).state == State.SUCCEEDED


async def test_a_submit_wakes_the_dispatcher(store: Store, settings: Settings, cluster: InProcessCluster) -> None:
    patient = settings.model_copy(update={"poll_s": 60.0})
    wake = asyncio.Event()
    task = asyncio.create_task(Dispatcher(store, patient, cluster, wake).run())
    try:
        for _ in range(2):  # the second finds a dispatcher that had nothing to do
            job = await submit(store, settings, steps=3)
            wake.set()
            assert (await ended(store, job)).state == State.SUCCEEDED
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
