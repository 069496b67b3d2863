"""One attempt under a dispatcher: its events land once, and its end is stored."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NoReturn
from uuid import uuid4

import pytest
from harness.databases import POSTGRESQL_IN_FULL
from harness.events import whole_event
from harness.patience import PATIENCE_S
from harness.postgres import Postgres

from shardyard.service import nodes
from shardyard.service.cluster.interface import Pull
from shardyard.service.dispatch.attempt_runner import Attempt
from shardyard.service.errors import ClusterError
from shardyard.service.jobs import submit as submitting
from shardyard.service.jobs.pause import pause
from shardyard.service.jobs.transitions import Cause
from shardyard.service.queries import jobs
from shardyard.service.schemas.cursor import Cursor
from shardyard.service.schemas.job import Job, Summary
from shardyard.service.settings import NodeGroup, Settings
from shardyard.service.states import FINAL, State
from shardyard.service.store import checkpoints, leases
from shardyard.service.store.engine import Store
from shardyard.service.store.leases import Lease
from shardyard.service.store.tables import jobs as job_rows

from ...inprocess_cluster import Gang, InProcessCluster, run_until_stopped, train
from .dispatching import dispatching, ended, eventually, job_history, states, steps, submit, until

Ends = Callable[[Store, str, str], Awaitable[Job]]


@POSTGRESQL_IN_FULL
async def test_a_job_runs_from_queue_to_success(store: Store, settings: Settings, cluster: InProcessCluster) -> None:
    job = await submit(store, settings, steps=20)
    async with dispatching(store, settings, cluster):
        job = await ended(store, job)
        await eventually(lambda: not cluster.living)
    assert await states(store, job) == ["queued", "placing", "starting", "running", "succeeded"]
    assert await steps(store, job) == list(range(1, 21))
    assert job.progress is not None
    assert (job.progress.step, job.progress.steps, job.progress.tokens) == (20, 20, 20 * 64)
    assert job.summary is not None and job.summary.time_to_first_step_s is not None
    assert job.summary == Summary(
        first_loss=5.0, last_loss=1.0, steps=20, time_to_first_step_s=job.summary.time_to_first_step_s
    )
    assert job.started_at is not None and job.finished_at is not None and job.device == "cpu"
    assert [spec.name for spec in cluster.specs] == [f"shardyard-{job.id}-1"]
    assert cluster.specs[0].run["checkpoints"] == f"{settings.storage}/{job.id}"


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


@POSTGRESQL_IN_FULL
async def test_a_spec_that_an_earlier_version_stored_and_this_one_cannot_read_fails_its_job(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    job = await submit(store, settings, max_retries=3, max_restarts=3)
    async with store.write() as tx:
        spec = {**job.spec, "train": {**job.spec["train"], "gone": 1}}
        await tx.execute(job_rows.update().where(job_rows.c.id == job.id).values(spec=spec))
    async with dispatching(store, settings, cluster):
        job = await ended(store, job)
        assert (await ended(store, await submit(store, settings))).state == State.SUCCEEDED
    assert (job.state, job.reason) == (State.FAILED, "spec_unreadable")
    assert job.message is not None and "gone" in job.message and "Submit the job again" in job.message


@POSTGRESQL_IN_FULL
async def test_a_job_whose_source_lost_the_checkpoint_while_it_waited_takes_no_devices(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    source = await submit(store, settings)
    job = await submit(store, settings, max_retries=3, max_restarts=3)
    resume = f"{settings.storage}/{source.id}/step-00000010"
    async with store.write() as tx:
        await checkpoints.put(tx, source.id, 10, "deleted")
        await tx.execute(job_rows.update().where(job_rows.c.id == job.id).values(resume=resume))
    async with dispatching(store, settings, cluster):
        job = await ended(store, job)
        await ended(store, source)
    assert (job.state, job.reason, job.attempt) == (State.FAILED, "checkpoint_deleted", 1)
    assert "step 10" in (job.message or "") and [spec.name for spec in cluster.specs] == [f"shardyard-{source.id}-1"]


@POSTGRESQL_IN_FULL
async def test_a_gang_that_has_read_its_checkpoint_goes_on_when_the_source_loses_it(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    """Its dispatcher dies before the gang reports anything, so that the next one starts it again."""
    restored = asyncio.Event()

    async def reports_late(gang: Gang) -> None:
        await restored.wait()
        await train(gang)

    cluster.script = reports_late
    source = await submit(store, settings)
    await submitting.cancel(store, source.id, "tester")
    job = await submit(store, settings)
    resume = f"{settings.storage}/{source.id}/step-00000010"
    async with store.write() as tx:
        await tx.execute(job_rows.update().where(job_rows.c.id == job.id).values(resume=resume))
    async with dispatching(store, settings, cluster):
        await eventually(lambda: bool(cluster.living))
    assert (await jobs.get_job(store, job.id)).state == State.PLACING
    async with store.write() as tx:
        await checkpoints.put(tx, source.id, 10, "deleted")
    restored.set()
    async with dispatching(store, settings, cluster):
        job = await ended(store, job)
    assert (job.state, job.attempt, job.message) == (State.SUCCEEDED, 1, None)


@pytest.mark.parametrize("state", [State.PAUSED, State.QUEUED, State.SUCCEEDED])
@POSTGRESQL_IN_FULL
async def test_an_attempt_whose_end_is_stored_is_not_lost_again(
    store: Store, settings: Settings, cluster: InProcessCluster, state: State
) -> None:
    """The commit's answer was lost, and then the gang was gone."""
    job = await submit(store, settings)
    lease = Lease(job.id, uuid4().hex, "a")
    async with store.write() as tx:
        assert await leases.take(tx, lease, 600.0)
        await tx.execute(job_rows.update().where(job_rows.c.id == job.id).values(state=state, attempt=1))
    before = await jobs.get_job(store, job.id)
    await Attempt(store, settings, cluster, lease)._lose(Cause("a", time.time(), "gang_lost", "there is no gang"))
    assert await jobs.get_job(store, job.id) == before


@POSTGRESQL_IN_FULL
async def test_a_gang_learns_which_nodes_are_cordoned(
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
    assert [spec.avoided for spec in cluster.specs] == [("node-1",), ()]


@POSTGRESQL_IN_FULL
async def test_a_gang_learns_which_images_nodes_have_that_are_away(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    groups = (NodeGroup(nodes=1, cpus=8, gpus=0), NodeGroup(nodes=1, cpus=8, gpus=8, image="nemo"))
    settings = settings.model_copy(update={"capacity": groups})
    async with dispatching(store, settings, cluster):
        assert (await ended(store, await submit(store, settings))).state == State.SUCCEEDED
    assert [spec.other_images for spec in cluster.specs] == [("nemo",)]


@pytest.mark.parametrize(("ends", "state"), [(submitting.cancel, State.CANCELLED), (pause, State.PAUSED)])
@POSTGRESQL_IN_FULL
async def test_a_job_ends_while_ray_does_not_say_why_its_gang_is_lost(
    store: Store,
    settings: Settings,
    cluster: InProcessCluster,
    ends: Ends,
    state: State,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The whole cluster may be gone. That makes no difference to a job that a user has ended."""
    cluster.script = run_until_stopped
    job = await submit(store, settings)
    async with dispatching(store, settings, cluster):
        await until(store, job, lambda now: Cursor.parse(now.cursor).step >= 1)

        async def unanswered() -> NoReturn:
            raise ClusterError("the cluster does not answer")

        cluster.nodes = unanswered  # type: ignore[method-assign]
        await cluster.kill(f"shardyard-{job.id}-1")
        await eventually(lambda: f"{job.id}: the cluster does not respond" in caplog.text)
        await ends(store, job.id, "tester")
        job = await until(store, job, lambda now: now.state == state)
    assert job.budgets.restarts.used == 0


@pytest.fixture
async def restartable(postgres: Postgres) -> AsyncIterator[Store]:
    """A store on PostgreSQL, whose server the test may restart."""
    url = postgres.new_database()
    opened = Store(url)
    yield opened
    await opened.close()
    postgres.drop(url)


async def test_what_a_cancelled_gang_had_reported_is_stored_however_slow_the_database_is(
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


@POSTGRESQL_IN_FULL
async def test_what_a_cancelled_gang_reported_last_is_waited_for(
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
        reported = len(cluster.living[f"shardyard-{job.id}-1"].history)
        await until(store, job, lambda now: Cursor.parse(now.cursor).step > reported, seconds=PATIENCE_S)
        await submitting.cancel(store, job.id, "tester")
        job = await until(store, job, lambda now: now.state in FINAL, seconds=PATIENCE_S)
    stored = await steps(store, job)
    assert stored == list(range(1, len(stored) + 1))


@POSTGRESQL_IN_FULL
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
    incidents = [item.data for item in await job_history(store, job) if item.kind == "incident"]
    assert [incident["cause"] for incident in incidents] == ["events_lost"]
