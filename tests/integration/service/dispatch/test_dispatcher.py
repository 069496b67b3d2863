"""The dispatcher over real databases and a scriptable cluster: whichever side dies, each event lands exactly once."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from harness.events import whole_event
from harness.patience import PATIENCE_S
from harness.postgres import Postgres
from sqlalchemy import event

from shardyard.service import nodes
from shardyard.service.cluster.interface import Pull
from shardyard.service.dispatch.dispatcher import Dispatcher
from shardyard.service.dispatch.lease_owner import Owner
from shardyard.service.errors import InvalidLayout, JobEnded
from shardyard.service.jobs import submit as submitting
from shardyard.service.jobs.reshard import reshard
from shardyard.service.orders import fault_injection, step_traces
from shardyard.service.queries import jobs, live_tail
from shardyard.service.schemas.cursor import Cursor
from shardyard.service.schemas.fault import FaultRequest
from shardyard.service.schemas.job import Budget, Job, Summary
from shardyard.service.schemas.live_tail import Scope
from shardyard.service.settings import Settings
from shardyard.service.spec import JobSpec
from shardyard.service.states import FINAL, State
from shardyard.service.store import jobs as job_rows
from shardyard.service.store import leases
from shardyard.service.store.engine import Store
from shardyard.service.store.leases import Lease
from shardyard.workers.messages.event import VERSION
from shardyard.workers.messages.trace_request import Trace

from ...inprocess_cluster import Gang, InProcessCluster, run_until_stopped, train


@pytest.fixture
def settings(tmp_path: Any) -> Settings:
    fast = {"lease_s": 600.0, "poll_s": 0.05, "pull_s": 0.3, "nodes_s": 0.1, "sweep_s": 0.1, "cancel_s": 60.0}
    fast |= {"retry_backoff_s": 0.05, "retry_backoff_max_s": 0.2}
    return Settings(data_dir=tmp_path, cpu_ranks_per_core=4, **fast)


@pytest.fixture
async def cluster() -> AsyncIterator[InProcessCluster]:
    made = InProcessCluster()
    yield made
    await made.end()


@contextlib.asynccontextmanager
async def dispatching(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> AsyncIterator["asyncio.Task[None]"]:
    task = asyncio.create_task(Dispatcher(store, settings, cluster).run())
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def spec(steps: int = 20, data: int = 1, name: str = "try", **policy: int) -> JobSpec:
    training = {"steps": steps, "global_batch": 4 * data, "layout": {"data": data}}
    return JobSpec.model_validate({"name": name, "train": training, "policy": policy})


async def submit(store: Store, settings: Settings, **numbers: Any) -> Job:
    job, _ = await submitting.submit(store, settings, spec(**numbers), None, "", "tester")
    return job


async def until(store: Store, job: Job, holds: Callable[[Job], bool], seconds: float = PATIENCE_S) -> Job:
    async with asyncio.timeout(seconds):
        while not holds(now := await jobs.get_job(store, job.id)):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return now


async def ended(store: Store, job: Job) -> Job:
    return await until(store, job, lambda now: now.state in FINAL)


def reached(state: State) -> Callable[[Job], bool]:
    return lambda job: job.state == state


async def story(store: Store, job: Job) -> list[Any]:
    tail = await live_tail.tail(store, job.id, Cursor(), Scope(logs=True), limit=100_000)
    return tail.items


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


async def states(store: Store, job: Job) -> list[str]:
    return [item.data["state"] for item in await story(store, job) if item.kind == "state"]


async def steps(store: Store, job: Job) -> list[int]:
    return [item.data["step"] for item in await story(store, job) if item.kind == "step"]


async def told_faults(store: Store, job: Job) -> list[tuple[str, bool, str]]:
    told = [item.data for item in await story(store, job) if item.kind == "fault"]
    return [(data["id"], data["done"], data["asked_by"]) for data in told]


async def eventually(holds: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_a_job_runs_from_queue_to_success(store: Store, settings: Settings, cluster: InProcessCluster) -> None:
    job = await submit(store, settings, steps=20)
    async with dispatching(store, settings, cluster):
        job = await ended(store, job)
        await eventually(lambda: not cluster.living)
    assert await states(store, job) == ["queued", "placing", "starting", "running", "succeeded"]
    assert await steps(store, job) == list(range(1, 21))
    assert job.progress is not None
    assert (job.progress.step, job.progress.steps, job.progress.tokens) == (20, 20, 20 * 64)
    assert job.summary == Summary(first_loss=5.0, last_loss=1.0, steps=20)
    assert job.started_at is not None and job.finished_at is not None and job.device == "cpu"
    assert [order.name for order in cluster.orders] == [f"shardyard-{job.id}-1"]
    assert cluster.orders[0].run["checkpoints"] == f"{settings.storage}/{job.id}"


async def test_events_that_come_twice_or_whose_answer_was_lost_land_once(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    cluster.repeats, cluster.lost_replies = True, 3
    job = await submit(store, settings, steps=40)
    async with dispatching(store, settings, cluster):
        job = await ended(store, job)
    assert job.state == State.SUCCEEDED
    assert await steps(store, job) == list(range(1, 41))
    assert await states(store, job) == ["queued", "placing", "starting", "running", "succeeded"]


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
    told = [event["data"]["step"] for event in gang.history if event["kind"] == "step"]
    assert await steps(store, job) == told
    assert len(told) > 3
    assert {order.name for order in cluster.orders} == {f"shardyard-{job.id}-1"}
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
    assert sorted(order.name for order in cluster.orders) == sorted(f"shardyard-{job.id}-1" for job in made)
    for job in made:
        assert await steps(store, job) == [1, 2, 3, 4, 5]


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
    async def deaf(gang: Gang) -> None:
        gang.stubborn = True
        await run_until_stopped(gang)

    cluster.script = deaf
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


def with_layout(job: Job, **layout: int) -> JobSpec:
    return JobSpec.model_validate(job.spec | {"train": job.spec["train"] | {"layout": layout}})


async def test_a_running_job_goes_on_with_another_layout(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    cluster.script = run_until_stopped
    job = await submit(store, settings)
    assert job.world_size == 1
    async with dispatching(store, settings, cluster):
        await until(store, job, reached(State.RUNNING))
        asked = [await reshard(store, settings, job.id, with_layout(job, data=2), "tester") for _ in range(2)]
        assert [one.world_size for one in asked] == [2, 2] and asked[0].state == State.RESHARDING
        cluster.script = train
        job = await ended(store, job)
    assert (job.state, job.attempt, job.restarts) == (State.SUCCEEDED, 2, 0)
    assert [(order.world_size, order.run["train"]["layout"]["data"]) for order in cluster.orders] == [(1, 1), (2, 2)]
    moves = ["queued", "placing", "starting", "running", "resharding", "queued", "placing", "starting", "running"]
    assert await states(store, job) == [*moves, "succeeded"]
    asked_for = [item.data["reason"] for item in await story(store, job) if item.kind == "state"][4:6]
    assert asked_for == ["reshard", "reshard"]
    (told,) = [item.data for item in await story(store, job) if item.kind == "reshard"]
    assert told == {"before": "data 1", "after": "data 2"}
    with pytest.raises(JobEnded):
        await reshard(store, settings, job.id, with_layout(job, data=1), "tester")


async def test_a_gang_that_does_not_save_in_time_is_ended_and_the_layout_holds(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    async def deaf(gang: Gang) -> None:
        gang.stubborn = True
        await run_until_stopped(gang)

    cluster.script = deaf
    job = await submit(store, settings)
    async with dispatching(store, settings.model_copy(update={"reshard_s": 0.2, "cancel_s": 0.4}), cluster):
        await until(store, job, reached(State.RUNNING))
        cluster.script = train
        await reshard(store, settings, job.id, with_layout(job, data=2), "tester")
        job = await ended(store, job)
    assert (job.state, job.attempt, job.restarts, job.world_size) == (State.SUCCEEDED, 2, 0, 2)


async def test_a_job_that_makes_room_can_be_cancelled(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    async def saves_for_ever(gang: Gang) -> None:
        gang.stubborn = True
        await run_until_stopped(gang)

    cluster.script = saves_for_ever
    job = await submit(store, settings)
    async with dispatching(store, settings.model_copy(update={"cancel_s": 0.4}), cluster):
        await until(store, job, reached(State.RUNNING))
        await reshard(store, settings, job.id, with_layout(job, data=2), "tester")
        await submitting.cancel(store, job.id, "tester")
        job = await ended(store, job)
        await eventually(lambda: not cluster.living)
    assert (job.state, job.attempt) == (State.CANCELLED, 1)


async def test_a_waiting_job_takes_a_layout_at_once_and_none_that_cannot_be(store: Store, settings: Settings) -> None:
    job = await submit(store, settings)
    changed = await reshard(store, settings, job.id, with_layout(job, data=2), "tester")
    assert (changed.state, changed.world_size, changed.layout) == (State.QUEUED, 2, "data 2")
    with pytest.raises(InvalidLayout) as refusal:
        await reshard(store, settings, job.id, with_layout(job, tensor=7), "tester")
    assert refusal.value.field == "train.layout.tensor"
    assert (await jobs.get_job(store, job.id)).world_size == 2


async def test_an_exception_fails_the_job_and_is_not_retried(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    async def raises(gang: Gang) -> None:
        await gang.state("starting")
        await gang.tell("incident", cause="exception", rank=1, message="ValueError: no", traceback="…")
        await gang.state("failed", "exception", "rank 1: ValueError: no")

    cluster.script = raises
    job = await submit(store, settings)
    async with dispatching(store, settings, cluster):
        job = await ended(store, job)
    assert (job.state, job.reason, job.message) == (State.FAILED, "exception", "rank 1: ValueError: no")
    assert (job.attempt, job.budgets.restarts) == (1, Budget(used=0, most=3))


def raising(line: int, step: int) -> Callable[[Gang], Any]:
    """What a gang does whose training code raises at a line of its own, in a step."""

    async def script(gang: Gang) -> None:
        await gang.state("starting")
        frame = f'Traceback …\n  File "mine.py", line {line}, in forward\nValueError: at 0x7f{id(gang):x}'
        told = {"message": f"ValueError: at 0x7f{id(gang):x}", "traceback": frame, "raised_in": step}
        await gang.tell("incident", cause="exception", rank=1, **told)
        await gang.state("failed", "exception", "rank 1: ValueError: at 0x7f")

    return script


async def test_exceptions_are_retried_where_the_policy_says_so(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    async def another_each_time(gang: Gang) -> None:
        await raising(line=len(cluster.orders), step=7)(gang)

    cluster.script = another_each_time
    job = await submit(store, settings, max_retries=2, max_restarts=0)
    async with dispatching(store, settings, cluster):
        job = await ended(store, job)
    assert (job.state, job.reason, job.attempt, job.restarts) == (State.FAILED, "exception", 3, 0)
    assert job.budgets.retries == Budget(used=2, most=2)
    assert job.message == "2 of 2 retries are used up (policy.max_retries): rank 1: ValueError: at 0x7f"
    one = ["placing", "starting", "recovering", "queued"]
    assert await states(store, job) == ["queued", *one, *one, "placing", "starting", "failed"]


async def test_the_same_exception_at_the_same_step_is_not_tried_a_third_time(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    async def elsewhere_first(gang: Gang) -> None:
        await raising(line=10, step=8 if len(cluster.orders) == 1 else 9)(gang)

    cluster.script = elsewhere_first
    job = await submit(store, settings, max_retries=100)
    async with dispatching(store, settings, cluster):
        job = await ended(store, job)
    assert (job.state, job.reason, job.attempt) == (State.FAILED, "exception_repeated", 3)
    assert job.message is not None
    assert job.message.startswith(
        "The same exception at the same step ended attempt 2: a new try would end the same way: rank 1"
    )


async def test_a_job_waits_for_its_next_try_in_the_database_alone(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    """Nobody's lease and nobody's task; the time that is told comes; whichever dispatcher lives then goes on."""

    async def dies(gang: Gang) -> None:
        await gang.state("starting")
        await gang.state("failed", "rank_lost", "killed by SIGKILL")

    cluster.script = dies
    patient = settings.model_copy(update={"retry_backoff_s": 600.0, "retry_backoff_max_s": 600.0})
    job, other = await submit(store, settings), await submit(store, settings, name="other", data=4)
    async with dispatching(store, patient, cluster):
        job = await until(store, job, lambda now: now.retry_at is not None)
        assert (job.state, job.reason, job.budgets.restarts) == (State.QUEUED, "rank_lost", Budget(used=1, most=3))
        assert job.message is not None and job.message.startswith("Restart 1 of 3 in ")
        assert job.message.endswith(" s: killed by SIGKILL")
        await until(store, other, lambda now: now.retry_at is not None)  # nobody waits behind it
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
async def test_infrastructure_faults_use_restarts_up(
    store: Store, settings: Settings, cluster: InProcessCluster, how: str
) -> None:
    async def dies(gang: Gang) -> None:
        await gang.state("starting")
        await gang.state("running")
        await gang.step(1)
        await eventually(lambda: gang.acknowledged == len(gang.history))  # what nobody has pulled dies with the gang
        if how == "rank_lost":
            await gang.state("failed", "rank_lost", "killed by SIGKILL")
        else:
            asyncio.get_running_loop().create_task(cluster.kill(gang.order.name))
            await asyncio.sleep(60)

    cluster.script = dies
    job = await submit(store, settings, max_restarts=2)
    async with dispatching(store, settings, cluster):
        job = await ended(store, job)
    assert (job.state, job.reason, job.restarts, job.attempt) == (State.FAILED, how, 2, 3)
    one = ["placing", "starting", "running", "recovering", "queued"]
    assert await states(store, job) == ["queued", *one, *one, "placing", "starting", "running", "failed"]
    assert await steps(store, job) == [1]  # told three times, kept once


async def test_a_gang_of_another_version_is_replaced(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    """Its events are not stored; the next attempt's are."""
    cluster.version = VERSION + 1
    job = await submit(store, settings, max_restarts=1, steps=3)
    async with dispatching(store, settings, cluster):
        waits = await until(store, job, lambda now: now.restarts == 1)
        assert (waits.reason, await steps(store, job)) == ("other_version", [])
        assert f"version {VERSION + 1}" in (waits.message or "")
        cluster.version = VERSION
        job = await ended(store, job)
    assert (job.state, job.attempt) == (State.SUCCEEDED, 2)
    assert cluster.closed[0] == cluster.orders[0].name
    cluster.version = 0  # of a gang that does not say
    async with dispatching(store, settings, cluster):
        job = await ended(store, await submit(store, settings, max_restarts=0))
    assert (job.state, job.reason) == (State.FAILED, "other_version")


async def test_a_lost_cluster_costs_no_restart(store: Store, settings: Settings, cluster: InProcessCluster) -> None:
    cluster.script = run_until_stopped
    job = await submit(store, settings, max_restarts=0)
    async with dispatching(store, settings, cluster):
        await until(store, job, reached(State.RUNNING))
        cluster.script = train
        await cluster.replace_all_nodes()
        job = await ended(store, job)
    assert (job.state, job.restarts, job.attempt) == (State.SUCCEEDED, 0, 2)


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


async def test_jobs_wait_in_order_and_are_told_why(store: Store, settings: Settings, cluster: InProcessCluster) -> None:
    cluster.script = run_until_stopped
    first = await submit(store, settings, data=2)
    large = await submit(store, settings, data=4)
    small = await submit(store, settings, data=1)
    async with dispatching(store, settings, cluster):
        large = await until(store, large, lambda now: now.reason == "waiting_for_devices")
        assert large.message == "Needs 4 ranks, 2 of 4 CPU ranks are free; waiting for 2 more."
        small = await until(store, small, lambda now: now.reason == "waiting_for_turn")
        await until(store, first, reached(State.RUNNING))
        assert {order.name for order in cluster.orders} == {f"shardyard-{first.id}-1"}
        cluster.script = train
        await submitting.cancel(store, first.id, "tester")
        assert (await ended(store, large)).state == State.SUCCEEDED
        assert (await ended(store, small)).state == State.SUCCEEDED


async def test_a_gang_is_told_which_nodes_are_cordoned(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    cluster.machines.append(cluster.machines[0].model_copy(update={"id": "node-2"}))
    async with dispatching(store, settings, cluster):
        async with asyncio.timeout(PATIENCE_S):
            while len(await nodes.all_nodes(store, settings)) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        await nodes.cordon(store, settings, "node-1", None, "", "tester")
        assert (await ended(store, await submit(store, settings))).state == State.SUCCEEDED
        await nodes.uncordon(store, settings, "node-1", "tester")
        assert (await ended(store, await submit(store, settings))).state == State.SUCCEEDED
    assert [order.avoided for order in cluster.orders] == [("node-1",), ()]


async def test_gangs_without_a_job_are_swept(store: Store, settings: Settings, cluster: InProcessCluster) -> None:
    cluster.script = run_until_stopped
    job = await submit(store, settings)
    async with dispatching(store, settings, cluster):
        await until(store, job, reached(State.RUNNING))
        order = cluster.orders[0]
        over = await submit(store, settings, name="over", data=4)
        await submitting.cancel(store, over.id, "tester")
        for stray in (f"shardyard-{job.id}-0", "shardyard-job-unknown-1", f"shardyard-{over.id}-0"):
            await cluster.start_gang(type(order)(stray, order.run, 1, 1, "cpu", 0.0))
        await eventually(lambda: set(cluster.living) == {order.name})


async def test_gangs_of_another_control_plane_are_left_alone(
    store: Store, settings: Settings, cluster: InProcessCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.script = run_until_stopped
    shared = settings.model_copy(update={"ray_address": "127.0.0.1:6379"})
    job = await submit(store, settings)
    async with dispatching(store, shared, cluster):
        await until(store, job, reached(State.RUNNING))
        order = cluster.orders[0]
        for name in (theirs := "shardyard-job-unknown-1", stray := f"shardyard-{job.id}-0"):
            await cluster.start_gang(type(order)(name, order.run, 1, 1, "cpu", 0.0))
        for _ in range(3):  # whoever looks again tells nothing twice
            await eventually(lambda: stray not in cluster.living)
            await cluster.start_gang(type(order)(stray, order.run, 1, 1, "cpu", 0.0))
        await eventually(lambda: set(cluster.living) == {order.name, theirs})
    assert theirs not in cluster.closed
    assert sum(theirs in record.getMessage() for record in caplog.records) == 1


@pytest.fixture
async def restartable(postgres: Postgres) -> AsyncIterator[Store]:
    """A store on PostgreSQL, whose server the test may restart."""
    url = postgres.new_database()
    opened = Store(url)
    yield opened
    await opened.close()
    postgres.drop(url)


async def test_what_a_cancelled_gang_had_told_is_stored_however_slow_the_database_is(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    """A hundred steps wait when the job is cancelled, and go into the database one by one, for far longer than gangs have to end."""

    async def far_ahead(gang: Gang) -> None:
        await gang.state("starting")
        await gang.state("running")
        for step in range(1, 101):
            await gang.step(step)
        cluster.batch = 1
        await gang.stopped.wait()

    cluster.script = far_ahead
    job = await submit(store, settings, steps=1000)
    async with dispatching(store, settings.model_copy(update={"cancel_s": 0.01}), cluster):
        await until(store, job, lambda now: Cursor.parse(now.cursor).step >= 1)
        await submitting.cancel(store, job.id, "tester")
        job = await ended(store, job)
    assert await steps(store, job) == list(range(1, 101))
    assert (job.state, job.reason) == (State.CANCELLED, "cancel")


async def test_what_a_cancelled_gang_told_last_is_waited_for(
    store: Store, settings: Settings, cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job is cancelled when all events are stored, and the pull with the last ones takes longer than `cancel_s`."""
    pull = cluster.pull

    async def slow_at_the_end(gang: str, after: int, wait_s: float) -> Pull:
        answer = await pull(gang, after, wait_s)
        if cluster.living[gang].stopped.is_set():
            await asyncio.sleep(0.3)
        return answer

    monkeypatch.setattr(cluster, "pull", slow_at_the_end)
    cluster.script = run_until_stopped
    job = await submit(store, settings, steps=1000)
    async with dispatching(store, settings.model_copy(update={"cancel_s": 0.01}), cluster):
        await until(store, job, lambda now: Cursor.parse(now.cursor).step >= 3)
        gang = cluster.living[f"shardyard-{job.id}-1"]
        await submitting.cancel(store, job.id, "tester")
        job = await ended(store, job)
    assert await steps(store, job) == [event["data"]["step"] for event in gang.history if event["kind"] == "step"]
    assert (job.state, job.reason) == (State.CANCELLED, "cancel")


async def test_a_database_that_restarts_is_waited_for(
    restartable: Store, postgres: Postgres, settings: Settings, cluster: InProcessCluster
) -> None:
    store, cluster.script = restartable, run_until_stopped
    job = await submit(store, settings)
    async with dispatching(store, settings, cluster):
        for _ in range(2):
            seen = Cursor.parse((await jobs.get_job(store, job.id)).cursor).step
            await until(
                store, job, lambda now, seen=seen: Cursor.parse(now.cursor).step > seen + 10, seconds=PATIENCE_S
            )
            await asyncio.to_thread(postgres.restart)
        told = len(cluster.living[f"shardyard-{job.id}-1"].history)
        await until(store, job, lambda now: Cursor.parse(now.cursor).step > told, seconds=PATIENCE_S)
        await submitting.cancel(store, job.id, "tester")
        job = await until(store, job, lambda now: now.state in FINAL, seconds=PATIENCE_S)
    stored = await steps(store, job)
    assert stored == list(range(1, len(stored) + 1))


@pytest.mark.parametrize("repeats", [False, True], ids=["answers-lost", "events-twice"])
async def test_a_fault_that_a_user_asks_for_is_told_once(
    store: Store, settings: Settings, cluster: InProcessCluster, repeats: bool
) -> None:
    settings = settings.model_copy(update={"fault_injection": True})
    cluster.script, cluster.lost_orders, cluster.repeats = run_until_stopped, 2, repeats
    job = await submit(store, settings)
    async with dispatching(store, settings, cluster):
        await until(store, job, reached(State.RUNNING))
        asked = await fault_injection.create(
            store, settings, job.id, FaultRequest(kind="kill-rank", rank=0), None, "me"
        )
        gang = cluster.living[f"shardyard-{job.id}-1"]
        await eventually(lambda: len(gang.delivered) > 2)
        async with asyncio.timeout(PATIENCE_S):
            while not await told_faults(store, job):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    async with dispatching(store, settings, cluster):  # another dispatcher finds nothing left to order
        seen = Cursor.parse((await jobs.get_job(store, job.id)).cursor).step
        await until(store, job, lambda now: Cursor.parse(now.cursor).step > seen + 5)
        await submitting.cancel(store, job.id, "tester")
        await until(store, job, reached(State.CANCELLED))
    assert gang.delivered == [gang.delivered[0]] * 3 and gang.delivered[0].id == asked.id
    assert await told_faults(store, job) == [(asked.id, True, "me")]


@pytest.mark.parametrize("repeats", [False, True], ids=["answers-lost", "events-twice"])
async def test_a_trace_that_a_user_asks_for_is_carried_and_settled_once(
    store: Store, settings: Settings, cluster: InProcessCluster, repeats: bool
) -> None:
    cluster.script, cluster.lost_orders, cluster.repeats = run_until_stopped, 2, repeats
    job = await submit(store, settings)
    async with dispatching(store, settings, cluster):
        await until(store, job, reached(State.RUNNING))
        asked = await step_traces.create(store, job.id, 3, None, "me")
        gang = cluster.living[f"shardyard-{job.id}-1"]
        async with asyncio.timeout(PATIENCE_S):
            while (await step_traces.page(store, job.id)).items[0].state == "open":  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        await eventually(lambda: len(gang.delivered) == 3)
        await submitting.cancel(store, job.id, "tester")
        await until(store, job, reached(State.CANCELLED))
    assert set(gang.delivered) == {Trace(asked.id, 3)}
    [one] = (await step_traces.page(store, job.id)).items
    assert (one.id, one.state, one.parts, one.first_step, one.last_step) == (asked.id, "done", 6, 1, 3)
    told = [item.data for item in await story(store, job) if item.kind == "trace_finished"]
    assert [(data["id"], data["done"]) for data in told] == [(asked.id, True)]


async def test_a_fault_that_no_dispatcher_may_carry_is_missed(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    cluster.script = run_until_stopped
    job = await submit(store, settings)
    async with dispatching(store, settings, cluster):  # its settings do not allow faults
        await until(store, job, reached(State.RUNNING))
        allowed = settings.model_copy(update={"fault_injection": True})
        asked = await fault_injection.create(store, allowed, job.id, FaultRequest(kind="kill-supervisor"), None, "me")
        await submitting.cancel(store, job.id, "tester")
        await until(store, job, reached(State.CANCELLED))
    assert await told_faults(store, job) == [(asked.id, False, "me")]
    assert [item.kind for item in await story(store, job)][-1] == "state"


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
        told = len(gang.history)
        await eventually(lambda: len(gang.history) > told + 20)
        assert (await jobs.get_job(store, job.id)).cursor == stolen.cursor
        async with store.write() as tx:
            await leases.release(tx, [thief.token])
        await until(store, job, lambda now: Cursor.parse(now.cursor).step > Cursor.parse(stolen.cursor).step)
    trained = [event["data"]["step"] for event in gang.history if event["kind"] == "step"]
    stored = await steps(store, job)
    assert stored == trained[: len(stored)]


async def test_events_that_never_arrive_are_an_incident(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    async def forgets(gang: Gang) -> None:
        await gang.state("starting")
        await gang.state("running")
        async with gang.changed:
            last = whole_event("state", {"state": "succeeded"})
            gang.history.append({"seq": 9, "ts": time.time(), "kind": "state", "data": last})
            gang.changed.notify_all()

    cluster.script = forgets
    job = await submit(store, settings)
    async with dispatching(store, settings, cluster):
        job = await ended(store, job)
    assert job.state == State.SUCCEEDED
    incidents = [item.data for item in await story(store, job) if item.kind == "incident"]
    assert [incident["cause"] for incident in incidents] == ["events_lost"]


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
