"""A job continues on another layout under a dispatcher."""

import asyncio
from typing import Any

import pytest
from harness.databases import POSTGRESQL_IN_FULL

from shardyard.service.errors import InvalidLayout, JobEnded, TooManyRanks
from shardyard.service.jobs import memory_plan
from shardyard.service.jobs import submit as submitting
from shardyard.service.jobs.reshard import reshard
from shardyard.service.queries import jobs
from shardyard.service.schemas.job import Job
from shardyard.service.settings import Settings
from shardyard.service.spec import CommandSpec, JobSpec
from shardyard.service.states import State
from shardyard.service.store import jobs as rows
from shardyard.service.store import nodes
from shardyard.service.store.engine import Store

from ...inprocess_cluster import InProcessCluster, ignore_stop, run_until_stopped, train
from ..gang_events import NODE
from .dispatching import dispatching, ended, eventually, job_history, reached, states, submit, until


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
        cluster.script = train  # of the next gang, which may begin before the second request
        asked = [await reshard(store, settings, job.id, with_layout(job, data=2), "tester") for _ in range(2)]
        assert [one.world_size for one in asked] == [2, 2] and asked[0].state == State.RESHARDING
        job = await ended(store, job)
    assert (job.state, job.attempt, job.restarts) == (State.SUCCEEDED, 2, 0)
    assert [(spec.world_size, spec.run["train"]["layout"]["data"]) for spec in cluster.specs] == [(1, 1), (2, 2)]
    moves = ["queued", "placing", "starting", "running", "resharding", "queued", "placing", "starting", "running"]
    assert await states(store, job) == [*moves, "succeeded"]
    asked_for = [item.data["reason"] for item in await job_history(store, job) if item.kind == "state"][4:6]
    assert asked_for == ["reshard", "reshard"]
    (reported,) = [item.data for item in await job_history(store, job) if item.kind == "reshard"]
    assert reported == {"before": "data 1", "after": "data 2"}
    with pytest.raises(JobEnded):
        await reshard(store, settings, job.id, with_layout(job, data=1), "tester")


@POSTGRESQL_IN_FULL
async def test_a_gang_that_does_not_save_in_time_is_ended_and_the_layout_holds(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    cluster.script = ignore_stop
    job = await submit(store, settings)
    async with dispatching(store, settings.model_copy(update={"reshard_s": 0.2, "cancel_s": 0.4}), cluster):
        await until(store, job, lambda now: now.progress is not None and now.progress.step >= 1)
        cluster.script = train
        await reshard(store, settings, job.id, with_layout(job, data=2), "tester")
        job = await ended(store, job)
    assert (job.state, job.attempt, job.restarts, job.world_size) == (State.SUCCEEDED, 2, 0, 2)
    (lost,) = [item for item in await job_history(store, job) if item.kind == "incident"]
    assert lost.data["cause"] == "checkpoint_failed" and lost.data["step"] >= 1
    assert "within 0 s (SHARDYARD_RESHARD_S" in lost.data["message"] and "are lost" in lost.data["message"]


@POSTGRESQL_IN_FULL
async def test_a_job_that_makes_room_can_be_cancelled(
    store: Store, settings: Settings, cluster: InProcessCluster
) -> None:
    cluster.script = ignore_stop
    job = await submit(store, settings)
    async with dispatching(store, settings.model_copy(update={"cancel_s": 0.4}), cluster):
        await until(store, job, reached(State.RUNNING))
        await reshard(store, settings, job.id, with_layout(job, data=2), "tester")
        await submitting.cancel(store, job.id, "tester")
        job = await ended(store, job)
        await eventually(lambda: not cluster.living)
    assert (job.state, job.attempt) == (State.CANCELLED, 1)


async def test_a_command_takes_another_number_of_ranks(store: Store, settings: Settings) -> None:
    spec = CommandSpec.model_validate({"name": "mine", "command": ["a"], "ranks": 2, "resources": {"device": "cpu"}})
    job, _ = await submitting.submit(store, settings, spec, None, "", "tester")
    async with store.write() as tx:
        await nodes.replace(tx, [{**NODE, "memory_bytes": 1, "seen_at": 0.0}])
    within = CommandSpec.model_validate(job.spec | {"ranks": {"min": 1, "max": 4}})
    changed = await reshard(store, settings, job.id, within, "tester")
    assert (changed.state, changed.world_size, changed.layout) == (State.QUEUED, 4, "4 ranks")
    assert changed.spec["elastic"] == {"min": 1, "max": 4}
    with pytest.raises(TooManyRanks) as refusal:
        await reshard(store, settings, job.id, CommandSpec.model_validate(job.spec | {"ranks": 99_999}), "tester")
    assert refusal.value.field == "ranks"
    assert (await jobs.get_job(store, job.id)).world_size == 4


async def test_a_waiting_job_takes_a_layout_at_once_and_none_that_cannot_be(store: Store, settings: Settings) -> None:
    job = await submit(store, settings)
    changed = await reshard(store, settings, job.id, with_layout(job, data=2), "tester")
    assert (changed.state, changed.world_size, changed.layout) == (State.QUEUED, 2, "data 2")
    with pytest.raises(InvalidLayout) as refusal:
        await reshard(store, settings, job.id, with_layout(job, tensor=7), "tester")
    assert refusal.value.field == "train.layout.tensor"
    assert (await jobs.get_job(store, job.id)).world_size == 2


async def on_two_clusters(store: Store, settings: Settings) -> tuple[Job, JobSpec]:
    """A queued job of one rank, and its spec with as many as only the larger of two clusters has."""
    async with store.write() as tx:
        for cluster, cores in (("small", 1.0), ("large", 8.0)):
            await nodes.replace(tx, [{**NODE, "cpu": cores, "memory_bytes": 1, "seen_at": 0.0}], cluster)
    job = await submit(store, settings)
    ranks = 8 * settings.cpu_ranks_per_core
    wide = JobSpec.model_validate(
        job.spec | {"train": job.spec["train"] | {"global_batch": ranks, "layout": {"data": ranks}}}
    )
    return job, wide


async def test_a_job_that_was_placed_takes_a_layout_only_of_its_clusters_devices(
    store: Store, settings: Settings
) -> None:
    """It stays with its cluster, which has its checkpoints, however many devices another one has."""
    job, wide = await on_two_clusters(store, settings)
    assert (await reshard(store, settings, job.id, wide, "tester")).world_size == wide.world_size, "it may start on any"
    back = JobSpec.model_validate(job.spec)
    await reshard(store, settings, job.id, back, "tester")
    async with store.write() as tx:
        await rows.set_columns(tx, job.id, {"cluster": "small"})
        before = await rows.by_id(tx, job.id)
    with pytest.raises(TooManyRanks):
        await reshard(store, settings, job.id, wide, "tester")
    async with store.read() as tx:
        assert await rows.by_id(tx, job.id) == before


async def test_a_job_that_is_placed_meanwhile_is_judged_again(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, wide = await on_two_clusters(store, settings)
    planned = memory_plan.planned

    def placed(*asked: Any) -> Any:
        monkeypatch.undo()
        asyncio.run_coroutine_threadsafe(place(), loop).result()
        placing.append(job.id)
        return planned(*asked)

    async def place() -> None:
        async with store.write() as tx:
            await rows.set_columns(tx, job.id, {"cluster": "small"})

    loop, placing = asyncio.get_running_loop(), list[str]()
    monkeypatch.setattr(memory_plan, "planned", placed)
    with pytest.raises(TooManyRanks):
        await reshard(store, settings, job.id, wide, "tester")
    assert placing and (await jobs.get_job(store, job.id)).world_size == 1


async def test_a_layout_with_parameter_servers_is_for_cpus_and_another_for_any_device(
    store: Store, settings: Settings
) -> None:
    async def wanted(job: Job) -> str:
        async with store.read() as tx:
            row = await rows.by_id(tx, job.id)
        assert row is not None
        return str(row["wanted_device"])

    job = await submit(store, settings)
    assert await wanted(job) == "auto"
    layout = {"data": 2, "parameter_server": {"servers": 1}}
    changed = JobSpec.model_validate(job.spec | {"train": job.spec["train"] | {"layout": layout}})
    await reshard(store, settings, job.id, changed, "tester")
    assert await wanted(job) == "cpu"
    await reshard(store, settings, job.id, with_layout(job, data=2), "tester")
    assert await wanted(job) == "auto"
