"""Faults and traces under a dispatcher: each is carried out once and reported once."""

import asyncio

import pytest
from harness.databases import POSTGRESQL_IN_FULL
from harness.patience import PATIENCE_S

from shardyard.service.jobs import submit as submitting
from shardyard.service.orders import fault_injection, rank_commands, rank_profiles, step_traces
from shardyard.service.queries import jobs
from shardyard.service.schemas.cursor import Cursor
from shardyard.service.schemas.exec import Exec as Record
from shardyard.service.schemas.exec import ExecRequest
from shardyard.service.schemas.fault import FaultRequest
from shardyard.service.schemas.job import Job
from shardyard.service.schemas.profile import ProfileRequest
from shardyard.service.settings import Settings
from shardyard.service.states import State
from shardyard.service.store.engine import Store
from shardyard.workers.messages.exec_request import Exec
from shardyard.workers.messages.profile_request import Profile
from shardyard.workers.messages.trace_request import Trace

from ...inprocess_cluster import InProcessCluster, run_until_stopped
from .dispatching import dispatching, eventually, job_history, reached, submit, until


async def reported_faults(store: Store, job: Job) -> list[tuple[str, bool, str]]:
    reported = [item.data for item in await job_history(store, job) if item.kind == "fault"]
    return [(data["id"], data["done"], data["asked_by"]) for data in reported]


@pytest.mark.parametrize("repeats", [False, True], ids=["answers-lost", "events-twice"])
async def test_a_fault_that_a_user_asks_for_is_reported_once(
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
            while not await reported_faults(store, job):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    async with dispatching(store, settings, cluster):  # another dispatcher finds nothing left to order
        seen = Cursor.parse((await jobs.get_job(store, job.id)).cursor).step
        await until(store, job, lambda now: Cursor.parse(now.cursor).step > seen + 5)
        await submitting.cancel(store, job.id, "tester")
        await until(store, job, reached(State.CANCELLED))
    assert gang.delivered == [gang.delivered[0]] * 3 and gang.delivered[0].id == asked.id
    assert await reported_faults(store, job) == [(asked.id, True, "me")]


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
    reported = [item.data for item in await job_history(store, job) if item.kind == "trace_finished"]
    assert [(data["id"], data["done"]) for data in reported] == [(asked.id, True)]


@POSTGRESQL_IN_FULL
async def test_a_profile_that_a_user_asks_for_is_carried_with_its_storage(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    cluster.script, cluster.lost_orders = run_until_stopped, 1
    job = await submit(store, settings)
    async with dispatching(store, settings, cluster):
        await until(store, job, reached(State.RUNNING))
        asked = await rank_profiles.create(store, job.id, ProfileRequest(rank=0, kind="cpu", seconds=7), None, "me")
        gang = cluster.living[f"shardyard-{job.id}-1"]
        async with asyncio.timeout(PATIENCE_S):
            while (await rank_profiles.page(store, job.id)).items[0].state == "open":  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        await eventually(lambda: len(gang.delivered) == 2)
        await submitting.cancel(store, job.id, "tester")
        await until(store, job, reached(State.CANCELLED))
    most = settings.rules.artifacts.file_bytes
    assert set(gang.delivered) == {Profile(asked.id, "cpu", 0, 7, settings.artifacts(job.id), most)}


async def settled_command(store: Store, job: Job) -> Record:
    """The job's newest command, when it has ended."""
    async with asyncio.timeout(PATIENCE_S):
        while (newest := (await rank_commands.page(store, job.id)).items[0]).settled_at is None:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return newest


@POSTGRESQL_IN_FULL
async def test_a_command_is_carried_by_a_dispatcher_that_allows_it_and_refused_at_once_by_another(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    """A command that were to wait for a dispatcher might run hours later, and its user would wait without a word."""
    cluster.script = run_until_stopped
    allowed = settings.model_copy(update={"exec": True})
    command = ExecRequest(rank=0, command=["ls"])
    job = await submit(store, settings)
    async with dispatching(store, settings, cluster):
        await until(store, job, reached(State.RUNNING))
        await rank_commands.create(store, allowed, job.id, command, None, "me")
        refused = await settled_command(store, job)
        gang = cluster.living[f"shardyard-{job.id}-1"]
    async with dispatching(store, allowed, cluster):
        asked = await rank_commands.create(store, allowed, job.id, command, None, "me")
        carried = await settled_command(store, job)
        await submitting.cancel(store, job.id, "tester")
        await until(store, job, reached(State.CANCELLED))
    assert refused.status is None and refused.message and "SHARDYARD_EXEC is off" in refused.message
    assert gang.delivered == [Exec(asked.id, 0, ("ls",), 60)] and carried.status == 3
    ends = [item.data["id"] for item in await job_history(store, job) if item.kind == "exec"]
    assert ends == [refused.id, asked.id]


@POSTGRESQL_IN_FULL
async def test_an_order_that_an_earlier_versions_gang_does_not_know_is_settled(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    settings = settings.model_copy(update={"exec": True, "fault_injection": True})
    cluster.script, cluster.knows_orders = run_until_stopped, False
    job = await submit(store, settings)
    async with dispatching(store, settings, cluster):
        await until(store, job, reached(State.RUNNING))
        fault = FaultRequest(kind="kill-rank", rank=0)
        hit = await fault_injection.create(store, settings, job.id, fault, None, "me")
        await step_traces.create(store, job.id, 2, None, "me")
        await rank_profiles.create(store, job.id, ProfileRequest(rank=0), None, "me")
        await rank_commands.create(store, settings, job.id, ExecRequest(rank=0, command=["ls"]), None, "me")
        command = await settled_command(store, job)
        async with asyncio.timeout(PATIENCE_S):
            while (profile := (await rank_profiles.page(store, job.id)).items[0]).state == "open":  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            while (trace := (await step_traces.page(store, job.id)).items[0]).state == "open":  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            while not (faults := await reported_faults(store, job)):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        await submitting.cancel(store, job.id, "tester")
        await until(store, job, reached(State.CANCELLED))
    assert command.status is None and profile.state == trace.state == "failed"
    assert command.message == profile.message == trace.message and "earlier version" in str(command.message)
    assert faults == [(hit.id, False, "me")]


async def test_faults_that_the_dispatcher_may_not_inject_are_refused_at_once(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    """A fault that were to wait for another dispatcher might hit the job weeks later."""
    cluster.script = run_until_stopped
    allowed = settings.model_copy(update={"fault_injection": True})
    job = await submit(store, settings)
    async with dispatching(store, settings, cluster):
        await until(store, job, reached(State.RUNNING))
        fault = FaultRequest(kind="kill-rank", rank=0)
        asked = [await fault_injection.create(store, allowed, job.id, fault, None, "me") for _ in range(2)]
        async with asyncio.timeout(PATIENCE_S):
            while len(await reported_faults(store, job)) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        gang = cluster.living[f"shardyard-{job.id}-1"]
    async with dispatching(store, allowed, cluster):
        seen = Cursor.parse((await jobs.get_job(store, job.id)).cursor).step
        await until(store, job, lambda now: Cursor.parse(now.cursor).step > seen + 5)
        await submitting.cancel(store, job.id, "tester")
        await until(store, job, reached(State.CANCELLED))
    assert not gang.delivered
    faults = [item.data for item in await job_history(store, job) if item.kind == "fault"]
    off = "SHARDYARD_FAULT_INJECTION is off for the job's dispatcher"
    assert [(data["id"], data["done"], data["message"]) for data in faults] == [(one.id, False, off) for one in asked]


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
    assert await reported_faults(store, job) == [(asked.id, False, "me")]
    assert [item.kind for item in await job_history(store, job)][-1] == "state"
