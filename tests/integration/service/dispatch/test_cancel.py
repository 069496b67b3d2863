"""Cancelling jobs under a dispatcher."""

from shardyard.service.jobs import submit as submitting
from shardyard.service.settings import Settings
from shardyard.service.states import State
from shardyard.service.store.engine import Store

from ...inprocess_cluster import InProcessCluster, ignore_stop, run_until_stopped
from .dispatching import dispatching, ended, eventually, reached, submit, until


async def test_cancel_ends_a_running_job(store: Store, settings: Settings, cluster: InProcessCluster) -> None:
    cluster.script = run_until_stopped
    job = await submit(store, settings)
    async with dispatching(store, settings, cluster):
        await until(store, job, reached(State.RUNNING))
        asked = await submitting.cancel(store, job.id, "tester")
        assert asked.state == State.CANCELLING
        job = await ended(store, job)
        await eventually(lambda: not cluster.living)
    assert job.state == State.CANCELLED
    assert (await submitting.cancel(store, job.id, "tester")).state == State.CANCELLED


async def test_cancel_ends_a_gang_that_does_not_listen(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    cluster.script = ignore_stop
    job = await submit(store, settings)
    async with dispatching(store, settings.model_copy(update={"cancel_s": 0.4}), cluster):
        await until(store, job, reached(State.RUNNING))
        await submitting.cancel(store, job.id, "tester")
        job = await ended(store, job)
    assert job.state == State.CANCELLED
    assert not cluster.living


async def test_cancel_of_a_queued_job_is_immediate(store: Store, settings: Settings) -> None:
    job = await submit(store, settings)
    assert (await submitting.cancel(store, job.id, "tester")).state == State.CANCELLED
