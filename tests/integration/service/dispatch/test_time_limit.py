"""A job that has held devices for its `policy.max_duration` saves, ends and has failed, whichever dispatcher manages it."""

import asyncio
import time

import pytest
from harness.databases import POSTGRESQL_IN_FULL

from shardyard.service.errors import JobEnded
from shardyard.service.ids import gang_name
from shardyard.service.jobs import submit as submitting
from shardyard.service.jobs.pause import pause, resume
from shardyard.service.queries import jobs
from shardyard.service.schemas.job import Job
from shardyard.service.settings import Settings
from shardyard.service.states import State
from shardyard.service.store import attempts, system_samples
from shardyard.service.store.engine import Store
from shardyard.service.store.tables import attempts as attempt_rows
from shardyard.service.store.tables import events as event_rows
from shardyard.service.store.tables import steps as step_rows

from ...inprocess_cluster import Gang, InProcessCluster, run_until_stopped, train
from .dispatching import dispatching, ended, eventually, job_history, reached, states, submit, until

SAID = "stopped after its policy.max_duration of"


async def _age(store: Store, job: Job, seconds: float) -> None:
    """All attempts of the job began this much earlier."""
    async with store.write() as tx:
        mine = attempt_rows.update().where(attempt_rows.c.job_id == job.id)
        await tx.execute(mine.values(started_at=attempt_rows.c.started_at - seconds))


async def test_it_is_asked_to_save_and_has_failed(
    store: Store, settings: Settings, cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, stop = list[str](), cluster.stop

    async def note(gang: str, reason: str) -> None:
        await stop(gang, reason)  # raises until there is the gang, which the time may be up before
        asked.append(reason)

    monkeypatch.setattr(cluster, "stop", note)
    cluster.script = run_until_stopped
    job = await submit(store, settings, max_duration="1s", max_restarts=3)
    async with dispatching(store, settings, cluster):
        job = await ended(store, job)
        await eventually(lambda: not cluster.living)
    assert (job.state, job.reason, job.message) == (State.FAILED, "max_duration_exceeded", f"{SAID} 1s")
    assert (asked, job.attempt, job.restarts) == (["preempt"], 1, 0)
    assert (await states(store, job))[-2:] == ["stopping", "failed"]
    (stopping,) = [one for one in await job_history(store, job) if one.data.get("state") == "stopping"]
    assert (stopping.data["reason"], stopping.data["message"]) == ("max_duration_exceeded", f"{SAID} 1s")
    assert job.time_limit is not None and job.time_limit.ends_at is None
    assert job.time_limit.limit_s == 1 <= job.time_limit.used_s


async def test_a_dispatcher_that_takes_over_counts_what_was_used_before(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    cluster.script = run_until_stopped
    job = await submit(store, settings, max_duration="8h")
    async with dispatching(store, settings, cluster):
        running = await until(store, job, reached(State.RUNNING))
        assert running.time_limit is not None and running.time_limit.ends_at is not None
    await _age(store, job, 8 * 3600)
    async with dispatching(store, settings, cluster):
        job = await ended(store, job)
    assert (job.state, job.reason, job.attempt) == (State.FAILED, "max_duration_exceeded", 1)


async def test_time_in_which_the_gang_was_gone_already_does_not_count(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    """The machine was off for 16 hours, 10 s after the newest sign of life: a step, another event or a sample of the system."""
    away_s, cluster.script = 16 * 3600, run_until_stopped
    made = [await submit(store, settings, max_duration="8h") for _ in range(3)]
    async with dispatching(store, settings, cluster):
        for job in made:
            await until(store, job, lambda now: now.progress is not None and now.progress.step >= 1)
    for job in made:
        await cluster.kill(gang_name(job.id, 1))
    now = time.time()
    async with store.write() as tx:
        for table in (step_rows, event_rows):
            await tx.execute(table.update().values(ts=now - away_s - 10))
        await tx.execute(step_rows.update().where(step_rows.c.job_id == made[0].id).values(ts=now - away_s))
        mine = event_rows.update().where(event_rows.c.job_id == made[1].id, event_rows.c.actor == "gang")
        await tx.execute(mine.values(ts=now - away_s))
        await system_samples.append(tx, made[2].id, [(now - away_s, {"cpu": 1.0})])
        await tx.execute(attempt_rows.update().values(started_at=now - away_s - 100))
    cluster.script = train
    async with dispatching(store, settings, cluster):
        made = [await ended(store, job) for job in made]
    for job in made:
        assert (job.state, job.attempt) == (State.SUCCEEDED, 2), job.message
        assert job.time_limit is not None and 90 < job.time_limit.used_s < 3600
        assert job.device_s is not None and job.device_s < 3600


async def test_only_time_on_devices_counts(store: Store, settings: Settings, cluster: InProcessCluster) -> None:
    """The first attempt took two hours, long ago: the job waited, was paused, and continues with the six that are left."""
    cluster.script = run_until_stopped
    job = await submit(store, settings, max_duration="8h")
    assert (queued := (await jobs.get_job(store, job.id)).time_limit) is not None
    assert (queued.limit_s, queued.used_s, queued.ends_at) == (28_800, 0, None)
    async with dispatching(store, settings, cluster):
        await until(store, job, reached(State.RUNNING))
        await pause(store, job.id, "tester")
        await until(store, job, reached(State.PAUSED))
        async with store.write() as tx:
            await tx.execute(attempt_rows.update().values(started_at=1000.0, ended_at=8200.0))
        paused = (await jobs.get_job(store, job.id)).time_limit
        assert paused is not None and (paused.used_s, paused.ends_at) == (7200, None)
        cluster.script = train
        await resume(store, job.id, "tester")
        job = await ended(store, job)
    assert (job.state, job.attempt) == (State.SUCCEEDED, 2)
    assert job.time_limit is not None and 7200 < job.time_limit.used_s < 28_800
    async with store.read() as tx:
        assert await attempts.held_s(tx, "job-none", time.time()) == 0


async def test_a_job_that_loses_its_attempt_when_its_time_is_up_gets_no_other(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    aged = asyncio.Event()

    async def fail_then(gang: Gang) -> None:
        await gang.state("starting")
        await gang.state("running")
        await aged.wait()
        await gang.state("failed", "rank_lost", "rank 0 was killed")

    cluster.script = fail_then
    job = await submit(store, settings, max_duration="8h", max_restarts=3)
    async with dispatching(store, settings, cluster):
        await until(store, job, reached(State.RUNNING))
        await _age(store, job, 8 * 3600)
        aged.set()
        job = await ended(store, job)
    said = f"{SAID.capitalize()} 8h: rank 0 was killed"
    assert (job.state, job.reason, job.message) == (State.FAILED, "max_duration_exceeded", said)
    assert (job.attempt, job.restarts) == (1, 0)


@pytest.mark.parametrize("ahead_s", [36_000.0, -36_000.0])
@POSTGRESQL_IN_FULL
async def test_a_nodes_clock_uses_up_no_time_and_adds_none(
    store: Store, settings: Settings, cluster: InProcessCluster, ahead_s: float
) -> None:
    async def fail_once(gang: Gang) -> None:
        gang.ahead_s = ahead_s
        if len(cluster.specs) > 1:
            await train(gang)
            return
        await gang.state("starting")
        await gang.state("failed", "rank_lost", "rank 0 was killed")

    cluster.script = fail_once
    job = await submit(store, settings, max_duration="8h", max_restarts=3)
    async with dispatching(store, settings, cluster):
        job = await ended(store, job)
    assert (job.state, job.attempt) == (State.SUCCEEDED, 2)
    assert job.time_limit is not None and 0 < job.time_limit.used_s < 28_800


@POSTGRESQL_IN_FULL
async def test_a_user_may_cancel_what_is_stopped_and_an_exception_is_not_retried(
    store: Store, settings: Settings, cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    raises = asyncio.Event()

    async def fail_when_stopped(gang: Gang) -> None:
        await gang.state("starting")
        await gang.state("running")
        await raises.wait()
        await gang.emit("incident", cause="exception", message="rank 0: KeyError", rank=0)
        await gang.state("failed", "exception", "rank 0: KeyError")

    stop = cluster.stop

    async def ask(gang: str, reason: str) -> None:
        if reason == "cancel":
            await stop(gang, reason)
        await asyncio.sleep(0)

    monkeypatch.setattr(cluster, "stop", ask)
    cluster.script = fail_when_stopped
    job, other = [await submit(store, settings, max_duration="1s", max_retries=3) for _ in range(2)]
    async with dispatching(store, settings, cluster):
        await until(store, job, reached(State.STOPPING))
        for change in (pause, resume):
            with pytest.raises(JobEnded, match="is stopping"):
                await change(store, job.id, "tester")
        await submitting.cancel(store, job.id, "tester")
        assert (await ended(store, job)).state == State.CANCELLED
        await until(store, other, reached(State.STOPPING))
        raises.set()
        other = await ended(store, other)
    assert (other.state, other.reason, other.attempt) == (State.FAILED, "max_duration_exceeded", 1)
    assert other.budgets.retries.used == 0
