"""Jobs are paused and resumed under a dispatcher."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
from harness.databases import POSTGRESQL_IN_FULL
from harness.patience import PATIENCE_S

from shardyard.service.errors import JobEnded, JobPausing
from shardyard.service.jobs import submit as submitting
from shardyard.service.jobs.pause import pause, resume
from shardyard.service.queries import jobs
from shardyard.service.schemas.job import Job
from shardyard.service.settings import Settings
from shardyard.service.states import State
from shardyard.service.store.engine import Store

from ...inprocess_cluster import Gang, InProcessCluster, ignore_stop, run_until_stopped, train
from .dispatching import dispatching, ended, eventually, job_history, reached, states, submit, until


async def test_a_paused_job_holds_nothing_and_continues_as_a_new_attempt(
    store: Store, settings: Settings, cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gang ends, and the next one trains, once each request was made twice."""
    paused, resumed, stop = asyncio.Event(), asyncio.Event(), cluster.stop

    async def stop_later(gang: str, reason: str) -> None:
        await paused.wait()
        await stop(gang, reason)

    async def train_later(gang: Gang) -> None:
        await resumed.wait()
        await train(gang)

    monkeypatch.setattr(cluster, "stop", stop_later)
    cluster.script = run_until_stopped
    job = await submit(store, settings)
    async with dispatching(store, settings, cluster):
        await until(store, job, reached(State.RUNNING))
        assert [(await pause(store, job.id, "tester")).state for _ in range(2)] == [State.PAUSING] * 2
        paused.set()
        await until(store, job, reached(State.PAUSED))
        await eventually(lambda: not cluster.living)
        other = await ended(store, await submit_short(store, settings, cluster))
        assert other.state == State.SUCCEEDED
        assert (await pause(store, job.id, "tester")).state == State.PAUSED
        cluster.script = train_later
        assert (await resume(store, job.id, "tester")).state == State.QUEUED
        await resume(store, job.id, "tester")
        resumed.set()
        job = await ended(store, job)
    assert (job.state, job.attempt, job.restarts) == (State.SUCCEEDED, 2, 0)
    moves = [
        "queued",
        "placing",
        "starting",
        "running",
        "pausing",
        "paused",
        "queued",
        "placing",
        "starting",
        "running",
    ]
    assert await states(store, job) == [*moves, "succeeded"]
    reasons = [one.data["reason"] for one in await job_history(store, job) if one.kind == "state"]
    assert reasons[4:7] == ["paused_by_user", "pause", "resumed_by_user"]


async def submit_short(store: Store, settings: Settings, cluster: InProcessCluster) -> Job:
    cluster.script = train
    return await submit(store, settings, steps=3)


async def test_a_queued_job_leaves_the_queue(store: Store, settings: Settings, cluster: InProcessCluster) -> None:
    job = await submit(store, settings)
    assert (await pause(store, job.id, "tester")).state == State.PAUSED
    async with dispatching(store, settings, cluster):
        assert (await ended(store, await submit_short(store, settings, cluster))).state == State.SUCCEEDED
        assert (await jobs.get_job(store, job.id)).attempt == 0
        await resume(store, job.id, "tester")
        assert (await ended(store, job)).state == State.SUCCEEDED


@POSTGRESQL_IN_FULL
async def test_a_gang_that_does_not_save_in_time_is_ended_and_the_job_is_paused(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    refused = asyncio.Event()

    async def silent_before(gang: Gang) -> None:
        """Its last events are waited for, and come after the refusal: until then the job is not paused."""
        gang.stubborn = True
        await gang.state("starting")
        await gang.state("running")
        await refused.wait()
        for step in itertools.count(1):
            await gang.step(step)
            await asyncio.sleep(0.02)

    cluster.script = silent_before
    job = await submit(store, settings)
    short = {"reshard_s": 0.2, "cancel_s": 0.4, "pull_s": 2 * PATIENCE_S}
    async with dispatching(store, settings.model_copy(update=short), cluster):
        await until(store, job, reached(State.RUNNING))
        await pause(store, job.id, "tester")
        with pytest.raises(JobPausing):
            await resume(store, job.id, "tester")
        refused.set()
        paused = await until(store, job, reached(State.PAUSED))
    assert (paused.attempt, paused.restarts, paused.finished_at) == (1, 0, None)


async def test_a_dispatcher_that_takes_over_pauses_what_it_finds(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    """The first one ends while the gang does not answer; the gang is gone when the next one comes."""
    cluster.script = ignore_stop
    job = await submit(store, settings)
    async with dispatching(store, settings, cluster):
        await until(store, job, reached(State.RUNNING))
    await pause(store, job.id, "tester")
    await cluster.kill(f"shardyard-{job.id}-1")
    async with dispatching(store, settings, cluster):
        assert (await until(store, job, reached(State.PAUSED))).reason == "pause"


async def _fail(gang: Gang) -> None:
    await gang.state("starting")
    await gang.state("running")
    await gang.stopped.wait()
    await gang.emit("incident", cause="exception", message="rank 0: KeyError", rank=0)
    await gang.state("failed", "exception", "rank 0: KeyError")


@pytest.mark.parametrize(("retries", "state"), [(1, State.PAUSED), (0, State.FAILED)])
@POSTGRESQL_IN_FULL
async def test_an_exception_while_it_saves_fails_the_job_if_no_retry_is_left(
    store: Store,
    settings: Settings,
    cluster: InProcessCluster,
    retries: int,
    state: State,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def ask(gang: str, reason: str) -> None:
        cluster.living[gang].stopped.set()

    monkeypatch.setattr(cluster, "stop", ask)
    cluster.script = _fail
    job = await submit(store, settings, max_retries=retries)
    async with dispatching(store, settings, cluster):
        await until(store, job, reached(State.RUNNING))
        await pause(store, job.id, "tester")
        job = await until(store, job, reached(state))
    assert job.budgets.retries.used == retries


@pytest.mark.parametrize("ask", [pause, resume])
async def test_what_has_ended_stays_as_it_is(
    store: Store, settings: Settings, ask: Callable[[Store, str, str], Awaitable[Job]]
) -> None:
    job = await submit(store, settings)
    again = partial(ask, store, job.id, "tester")
    if ask is resume:
        assert (await again()).state == State.QUEUED
    await submitting.cancel(store, job.id, "tester")
    with pytest.raises(JobEnded):
        await again()


async def test_a_paused_job_can_be_cancelled(store: Store, settings: Settings) -> None:
    job = await submit(store, settings)
    await pause(store, job.id, "tester")
    assert (await submitting.cancel(store, job.id, "tester")).state == State.CANCELLED
