"""Elastic jobs over real databases and a scriptable cluster: fewer replicas when devices are gone, more when they are back."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from shardyard.service import jobs
from shardyard.service.records import Job
from shardyard.service.relayout import relayout
from shardyard.service.settings import Settings
from shardyard.service.spec import JobSpec
from shardyard.service.states import State
from shardyard.service.store.engine import Store

from ..inprocess_cluster import Gang, InProcessCluster, run_until_stopped, train
from .test_dispatcher import (  # noqa: F401  (fixtures)
    cluster,
    dispatching,
    ended,
    reached,
    settings,
    states,
    story,
    until,
)


def spec(least: int = 1, most: int = 4, grace_s: float = 0.0, **policy: Any) -> JobSpec:
    training = {"steps": 20, "global_batch": 16, "layout": {"data": {"min": least, "max": most}}}
    return JobSpec.model_validate({"name": "try", "train": training, "policy": policy | {"elastic_grace_s": grace_s}})


async def submit(store: Store, settings: Settings, **numbers: Any) -> Job:  # noqa: F811
    job, _ = await jobs.submit(store, settings, spec(**numbers), None, "", "tester")
    return job


async def relayouts(store: Store, job: Job) -> list[dict[str, Any]]:
    return [item.data for item in await story(store, job) if item.kind == "relayout"]


def has_room_for(cluster: InProcessCluster, ranks: int) -> None:  # noqa: F811
    """All of its devices but so many are taken by somebody else."""
    node = cluster.machines[0]
    cluster.machines = [replace(node, cpu_used=node.cpu - ranks / 4)]


def sizes(cluster: InProcessCluster) -> Sequence[tuple[int, int]]:  # noqa: F811
    return [(order.world_size, order.run["train"]["layout"]["data"]) for order in cluster.orders]


async def test_a_job_that_waited_long_enough_starts_with_the_replicas_for_which_there_is_room(
    store: Store,
    settings: Settings,  # noqa: F811
    cluster: InProcessCluster,  # noqa: F811
) -> None:
    has_room_for(cluster, 3)
    job = await submit(store, settings)
    assert (job.world_size, job.layout) == (4, "data 4")
    async with dispatching(store, settings, cluster):
        job = await ended(store, job)
    assert (job.state, job.attempt, job.world_size, job.layout) == (State.SUCCEEDED, 1, 2, "data 2")
    assert job.batch == "global batch 16 = 2 data × 1 micro-batches × 8 sequences"
    assert job.spec["train"]["layout"]["elastic"] == {"min": 1, "max": 4}
    assert sizes(cluster) == [(2, 2)]
    assert await relayouts(store, job) == [{"before": "data 4", "after": "data 2", "reason": "no_room"}]


async def test_a_job_takes_all_its_replicas_where_there_is_room_and_waits_for_them_before(
    store: Store,
    settings: Settings,  # noqa: F811
    cluster: InProcessCluster,  # noqa: F811
) -> None:
    has_room_for(cluster, 2)
    job = await submit(store, settings, grace_s=3600.0)
    async with dispatching(store, settings, cluster):
        job = await until(store, job, lambda now: now.reason == "waiting_for_devices")
        assert job.message == "Needs 4 ranks, 2 of 4 CPU ranks are free; waiting for 2 more."
        has_room_for(cluster, 4)
        job = await ended(store, job)
    assert (job.state, job.world_size) == (State.SUCCEEDED, 4)
    assert await relayouts(store, job) == []


async def test_a_gang_that_lost_devices_goes_on_smaller_at_once_and_costs_no_restart(
    store: Store,
    settings: Settings,  # noqa: F811
    cluster: InProcessCluster,  # noqa: F811
) -> None:
    async def loses_devices(gang: Gang) -> None:
        await gang.state("starting", "placed")
        await gang.state("running", "first_step")
        await gang.step(1)
        cluster.script = train
        has_room_for(cluster, 2)
        await gang.state("failed", "devices_lost", "2 of 4 devices did not come back")

    cluster.script = loses_devices
    job = await submit(store, settings, grace_s=3600.0, max_restarts=0)
    async with dispatching(store, settings, cluster):
        job = await ended(store, job)
    assert (job.state, job.attempt, job.restarts, job.world_size) == (State.SUCCEEDED, 2, 0, 2), job.message
    assert sizes(cluster) == [(4, 4), (2, 2)]
    assert await relayouts(store, job) == [{"before": "data 4", "after": "data 2", "reason": "no_room"}]


async def test_a_range_asked_for_again_leaves_the_smaller_job_alone(
    store: Store,
    settings: Settings,  # noqa: F811
    cluster: InProcessCluster,  # noqa: F811
) -> None:
    has_room_for(cluster, 2)
    cluster.script = run_until_stopped
    job = await submit(store, settings)
    async with dispatching(store, settings, cluster):
        job = await until(store, job, reached(State.RUNNING))
        assert (await relayout(store, settings, job.id, spec(), "tester")).state == State.RUNNING
        fixed = JobSpec.model_validate(job.spec | {"train": job.spec["train"] | {"layout": {"data": 1}}})
        cluster.script = train
        asked = await relayout(store, settings, job.id, fixed, "tester")
        assert (asked.state, asked.world_size) == (State.PREEMPTING, 1)
        job = await ended(store, job)
    assert (job.state, job.world_size) == (State.SUCCEEDED, 1)
    assert "preempting" in await states(store, job)
    assert job.spec["train"]["layout"]["elastic"] is None
