"""Which failures are retried, and what they cost."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from harness.databases import POSTGRESQL_IN_FULL

from shardyard.service.queries import jobs
from shardyard.service.schemas.cursor import Cursor
from shardyard.service.schemas.job import Budget
from shardyard.service.settings import Settings
from shardyard.service.states import State
from shardyard.service.store import attempts
from shardyard.service.store import jobs as job_rows
from shardyard.service.store.engine import Store
from shardyard.workers.messages.event import VERSION

from ...inprocess_cluster import Gang, InProcessCluster, run_until_stopped, train
from .dispatching import dispatching, ended, eventually, job_history, reached, states, steps, submit, until


@POSTGRESQL_IN_FULL
async def test_an_exception_fails_the_job_and_is_not_retried(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    async def raises(gang: Gang) -> None:
        await gang.state("starting")
        await gang.emit("incident", cause="exception", rank=1, message="ValueError: no", traceback="…")
        await gang.state("failed", "exception", "rank 1: ValueError: no")

    cluster.script = raises
    job = await submit(store, settings)
    async with dispatching(store, settings, cluster):
        job = await ended(store, job)
    assert (job.state, job.reason, job.message) == (State.FAILED, "exception", "rank 1: ValueError: no")
    assert (job.attempt, job.budgets.restarts) == (1, Budget(used=0, limit=3))


def raising(line: int, step: int | None) -> Callable[[Gang], Any]:
    """What a gang does whose training code raises at a line of its own, in a step."""

    async def script(gang: Gang) -> None:
        await gang.state("starting")
        frame = f'Traceback …\n  File "mine.py", line {line}, in forward\nValueError: at 0x7f{id(gang):x}'
        raised = {"message": f"ValueError: at 0x7f{id(gang):x}", "traceback": frame, "raised_in": step}
        await gang.emit("incident", cause="exception", rank=1, **raised)
        await gang.state("failed", "exception", "rank 1: ValueError: at 0x7f")

    return script


@POSTGRESQL_IN_FULL
async def test_exceptions_are_retried_where_the_policy_says_so(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    async def another_each_time(gang: Gang) -> None:
        await raising(line=len(cluster.specs), step=7)(gang)

    cluster.script = another_each_time
    job = await submit(store, settings, max_retries=2, max_restarts=0)
    async with dispatching(store, settings, cluster):
        job = await ended(store, job)
    assert (job.state, job.reason, job.attempt, job.restarts) == (State.FAILED, "exception", 3, 0)
    assert job.budgets.retries == Budget(used=2, limit=2)
    assert job.message == "2 of 2 retries are used up (policy.max_retries): rank 1: ValueError: at 0x7f"
    one = ["placing", "starting", "recovering", "queued"]
    assert await states(store, job) == ["queued", *one, *one, "placing", "starting", "failed"]


@POSTGRESQL_IN_FULL
async def test_the_same_exception_at_the_same_step_is_not_tried_a_third_time(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    async def elsewhere_first(gang: Gang) -> None:
        await raising(line=10, step=8 if len(cluster.specs) == 1 else 9)(gang)

    cluster.script = elsewhere_first
    job = await submit(store, settings, max_retries=100)
    async with dispatching(store, settings, cluster):
        job = await ended(store, job)
    assert (job.state, job.reason, job.attempt) == (State.FAILED, "exception_repeated", 3)
    assert job.message is not None
    assert job.message.startswith(
        "The same exception at the same step ended attempt 2: a new try would end the same way: rank 1"
    )


@POSTGRESQL_IN_FULL
async def test_a_program_has_all_the_retries_that_the_policy_gives_it(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    """Its exit status is always the same, and its step is not known."""
    cluster.script = raising(line=10, step=None)
    job = await submit(store, settings, max_retries=3)
    async with dispatching(store, settings, cluster):
        job = await ended(store, job)
    assert (job.state, job.reason, job.attempt) == (State.FAILED, "exception", 4)
    assert job.budgets.retries == Budget(used=3, limit=3)


async def test_a_job_waits_for_its_next_try_in_the_database_alone(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    """No dispatcher holds its lease or its task; the time that is shown comes; whichever dispatcher lives then goes on."""

    async def dies(gang: Gang) -> None:
        await gang.state("starting")
        await gang.state("failed", "rank_lost", "killed by SIGKILL")

    cluster.script = dies
    patient = settings.model_copy(update={"retry_backoff_s": 600.0, "retry_backoff_max_s": 600.0})
    job, other = await submit(store, settings), await submit(store, settings, name="other", data=4)
    async with dispatching(store, patient, cluster):
        job = await until(store, job, lambda now: now.retry_at is not None)
        assert (job.state, job.reason, job.budgets.restarts) == (State.QUEUED, "rank_lost", Budget(used=1, limit=3))
        assert job.message is not None and job.message.startswith("Restart 1 of 3 in ")
        assert job.message.endswith(" s: killed by SIGKILL")
        await until(store, other, lambda now: now.retry_at is not None)  # no job waits behind it
        await eventually(lambda: not cluster.living)
    async with store.write() as tx:
        row = await job_rows.by_id(tx, job.id)
        assert row is not None and row["lease_token"] is None and row["retry_at"] > time.time() + 200
        assert not await job_rows.any_queued(tx)
        await job_rows.set_columns(tx, job.id, {"retry_at": time.time()})  # the time has come
    cluster.script = train
    async with dispatching(store, patient, cluster):
        job = await ended(store, job)
    assert (job.state, job.attempt, job.retry_at) == (State.SUCCEEDED, 2, None)


@pytest.mark.parametrize("how", ["gang_lost", "rank_lost"])
@POSTGRESQL_IN_FULL
async def test_infrastructure_faults_use_restarts_up(
    store: Store, settings: Settings, cluster: InProcessCluster, how: str
) -> None:
    async def dies(gang: Gang) -> None:
        await gang.state("starting")
        await gang.state("running")
        await gang.step(1)
        await eventually(lambda: gang.acknowledged == len(gang.history))  # what was not pulled dies with the gang
        if how == "rank_lost":
            await gang.state("failed", "rank_lost", "killed by SIGKILL")
        else:
            asyncio.get_running_loop().create_task(cluster.kill(gang.spec.name))
            await asyncio.sleep(60)

    cluster.script = dies
    job = await submit(store, settings, max_restarts=2)
    async with dispatching(store, settings, cluster):
        job = await ended(store, job)
    assert (job.state, job.reason, job.restarts, job.attempt) == (State.FAILED, how, 2, 3)
    one = ["placing", "starting", "running", "recovering", "queued"]
    assert await states(store, job) == ["queued", *one, *one, "placing", "starting", "running", "failed"]
    assert await steps(store, job) == [1]  # reported three times, kept once


@POSTGRESQL_IN_FULL
@pytest.mark.parametrize("version", [VERSION + 1, 0])  # 0: of a gang that does not say
async def test_a_gang_of_another_version_is_replaced(
    store: Store, settings: Settings, cluster: InProcessCluster, version: int
) -> None:
    """Its events are not stored; the next attempt's are. It uses no budget: nodes that are being upgraded are no fault of the job."""

    async def other_at_first(gang: Gang) -> None:
        cluster.version = version if len(cluster.specs) == 1 else VERSION
        await train(gang)

    cluster.script = other_at_first
    job = await submit(store, settings, max_restarts=0, steps=3)
    async with dispatching(store, settings, cluster):
        job = await ended(store, job)
    assert (job.state, job.attempt, job.restarts) == (State.SUCCEEDED, 2, 0)
    again = ["placing", "starting", "running", "succeeded"]
    assert await states(store, job) == ["queued", "placing", "queued", *again]
    _, _, lost, *_ = [item.data for item in await job_history(store, job) if item.kind == "state"]
    assert lost["reason"] == "other_version" and f"version {version};" in lost["message"]
    assert await steps(store, job) == [1, 2, 3]
    assert cluster.closed[0] == cluster.specs[0].name


@POSTGRESQL_IN_FULL
async def test_a_lost_cluster_costs_no_restart(store: Store, settings: Settings, cluster: InProcessCluster) -> None:
    cluster.script = run_until_stopped
    job = await submit(store, settings, max_restarts=0)
    async with dispatching(store, settings, cluster):
        await until(store, job, reached(State.RUNNING))
        cluster.script = train
        await cluster.replace_all_nodes()
        job = await ended(store, job)
    assert (job.state, job.restarts, job.attempt) == (State.SUCCEEDED, 0, 2)


async def test_attempts_have_the_ids_of_the_clusters_nodes_until_they_end(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    cluster.script = run_until_stopped
    job = await submit(store, settings, max_restarts=0)

    async def nodes() -> list[list[str]]:
        async with store.read() as tx:
            return [await attempts.nodes(tx, job.id, number) for number in (1, 2)]

    async with dispatching(store, settings, cluster):
        await until(store, job, reached(State.RUNNING))
        placed = await nodes()
        cluster.script = train
        await cluster.replace_all_nodes()
        await ended(store, job)
    assert (placed, await nodes()) == ([["node-1"], []], [[], []])


@POSTGRESQL_IN_FULL
async def test_an_unreachable_cluster_fails_nothing(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    cluster.script = run_until_stopped
    job = await submit(store, settings, name="runs")
    async with dispatching(store, settings, cluster):
        await until(store, job, reached(State.RUNNING))
        cluster.reachable = False
        queued = await submit(store, settings, name="waits")
        await until(store, queued, lambda now: now.reason == "cluster_unreachable")
        assert (await jobs.get_job(store, job.id)).state == State.RUNNING
        cluster.reachable, cluster.script = True, train
        assert (await ended(store, queued)).state == State.SUCCEEDED
        seen = Cursor.parse((await jobs.get_job(store, job.id)).cursor).step
        await until(store, job, lambda now: Cursor.parse(now.cursor).step > seen)
