"""While nodes are away, what the cluster is to have decides: given by settings, or the most that a dispatcher saw."""

import asyncio
import contextlib
import time
from pathlib import Path

import pytest
from harness.patience import PATIENCE_S

from shardyard.service import capacity
from shardyard.service.dispatch.dispatcher import Dispatcher
from shardyard.service.errors import TooManyRanks
from shardyard.service.jobs import submit as submitting
from shardyard.service.nodes import all_nodes
from shardyard.service.queries import jobs
from shardyard.service.schemas.job import Job
from shardyard.service.schemas.node import ClusterNode
from shardyard.service.settings import NodeGroup, Settings
from shardyard.service.spec import JobSpec
from shardyard.service.states import FINAL, State
from shardyard.service.store import clusters, nodes
from shardyard.service.store.engine import Store

from ..inprocess_cluster import InProcessCluster

GPU_NODES = [
    ClusterNode(id=f"gpu-{i}", host=f"gpu-{i}", alive=True, cpu=64, gpu=8, memory_bytes=1 << 30) for i in range(2)
]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Of a control plane whose Ray cluster is its own."""
    fast = {"lease_s": 600.0, "poll_s": 0.05, "pull_s": 0.3, "nodes_s": 0.1, "stray_gangs_s": 0.1}
    return Settings(data_dir=tmp_path, ray_address="elsewhere:6379", **fast)


async def submit(store: Store, settings: Settings, ranks: int, device: str = "auto") -> Job:
    training = {"steps": 3, "global_batch": ranks, "layout": {"data": ranks}}
    body = {"name": "try", "train": training, "resources": {"device": device}}
    job, _ = await submitting.submit(store, settings, JobSpec.model_validate(body), None, "", "tester")
    return job


async def seen(store: Store, cluster: InProcessCluster) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            async with store.read() as tx:
                if len(await nodes.all_nodes(tx)) == len(cluster.machines):
                    return
            await asyncio.sleep(0.02)


async def until(store: Store, job: Job, *reasons: str) -> Job:
    async with asyncio.timeout(PATIENCE_S):
        while (now := await jobs.get_job(store, job.id)).state not in FINAL and now.reason not in reasons:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return now


@pytest.mark.parametrize("configured", [True, False])
async def test_jobs_wait_for_a_node_that_is_being_replaced(store: Store, settings: Settings, configured: bool) -> None:
    """Of two GPU nodes one is away: a job of all GPUs takes no CPUs and is not refused, and one of half of them runs."""
    cluster = InProcessCluster()
    cluster.machines = list(GPU_NODES)
    if configured:
        settings = settings.model_copy(update={"capacity": (NodeGroup(nodes=2, cpus=64, gpus=8),)})
        cluster.machines = GPU_NODES[:1]
    dispatching = asyncio.create_task(Dispatcher(store, settings, cluster).run())
    try:
        await seen(store, cluster)
        cluster.machines = GPU_NODES[:1]
        await seen(store, cluster)
        large = [await submit(store, settings, 16, device) for device in ("auto", "cuda")]
        with pytest.raises(TooManyRanks, match=r"Needs 17 ranks; the cluster has 16 GPUs\."):
            await submit(store, settings, 17, "cuda")
        small = await until(store, await submit(store, settings, 8))
        assert (small.state, small.device) == (State.SUCCEEDED, "cuda")
        for job in large:
            waits = await until(store, job, "waiting_for_nodes")
            assert (waits.state, waits.reason, waits.device) == (State.QUEUED, "waiting_for_nodes", None)
            assert "8 of 16 GPUs are on nodes in use, the others on nodes that are away" in (waits.message or "")
        cluster.machines = list(GPU_NODES)
        for job in large:
            done = await until(store, job)
            assert (done.state, done.device) == (State.SUCCEEDED, "cuda")
    finally:
        dispatching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await dispatching
        await cluster.end()


async def test_what_was_configured_last_counts(store: Store, settings: Settings) -> None:
    """A cluster that is configured smaller is smaller; one that is no longer configured is what is there."""
    for groups, gpus in (((3, 8), 24), ((1, 8), 8), (None, 16)):
        configured = None if groups is None else (NodeGroup(nodes=groups[0], gpus=groups[1]),)
        cluster = InProcessCluster()
        cluster.machines = list(GPU_NODES)
        current = settings.model_copy(update={"capacity": configured})
        dispatching = asyncio.create_task(Dispatcher(store, current, cluster).run())
        try:
            await seen(store, cluster)
            cluster.machines = []
            await seen(store, cluster)
        finally:
            dispatching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await dispatching
        api = settings.model_copy(update={"capacity": None})
        with pytest.raises(TooManyRanks, match=f"the cluster has {gpus} GPUs"):
            await submit(store, api, 64, "cuda")


@pytest.mark.parametrize("configured", [True, False])
async def test_gpus_of_an_image_are_for_jobs_of_that_image_also_while_they_are_away(
    store: Store, settings: Settings, configured: bool
) -> None:
    """A node of CPUs, and one with GPUs and an image of its own, which dies."""
    cpus = ClusterNode(id="cpu", host="cpu", alive=True, cpu=4, gpu=0, memory_bytes=1 << 30)
    nemo = GPU_NODES[0].model_copy(update={"image": "nemo"})
    if configured:
        groups = (NodeGroup(nodes=1, cpus=4), NodeGroup(nodes=1, cpus=64, gpus=8, image="nemo"))
        settings = settings.model_copy(update={"capacity": groups})
    other = settings.model_copy(update={"cluster": "other", "capacity": None})  # reads what is stored
    for found in ([cpus, nemo], [cpus]):
        async with store.write() as tx:
            await clusters.put(tx, "default", "its dispatcher", 15.0)
            await nodes.replace(tx, [{**node.model_dump(), "seen_at": time.time()} for node in found], "default")
            await capacity.remember(tx, settings, found)
        for process in (settings, other):
            async with store.read() as tx:
                (known,) = await capacity.known(tx, process)
            ranks = settings.cpu_ranks_per_core
            assert known.inventory.whole == {
                "cpu": {"": [4 * ranks], "nemo": [64 * ranks]},
                "cuda": {"nemo": [8]},
            }
            assert [row["id"] for row in known.rows] == ["cpu"], "no training runs on the other"
            with pytest.raises(TooManyRanks, match="on nodes of the cluster's own image"):
                await submit(store, process, 8, "cuda")


async def test_a_process_without_the_clusters_name_adds_no_cluster(store: Store, settings: Settings) -> None:
    """Nodes under `prod`, and an API that has no name of a cluster: the nodes of `prod` are all there are."""
    prod = settings.model_copy(update={"cluster": "prod"})
    rows = [{**node.model_dump(), "seen_at": time.time()} for node in GPU_NODES]
    async with store.read() as tx:
        assert [one.inventory.machines for one in await capacity.known(tx, settings)] == [[]]
    async with store.write() as tx:
        await clusters.put(tx, "prod", "its dispatcher", 15.0)
        await nodes.replace(tx, rows, "prod")
        await capacity.remember(tx, prod, GPU_NODES)
    async with store.read() as tx:
        (only,) = await capacity.known(tx, settings)
    assert [row["id"] for row in only.rows] == ["gpu-0", "gpu-1"] and only.inventory.whole["cuda"] == {"": [8, 8]}
    with pytest.raises(TooManyRanks, match="the cluster has 16 GPUs"):
        await submit(store, settings, 64, "cuda")
    async with store.write() as tx:
        await nodes.replace(tx, [], "prod")
    async with store.read() as tx:
        (away,) = await capacity.known(tx, settings)
    assert (away.rows, away.inventory.whole["cuda"]) == ([], {"": [8, 8]})
    async with store.write() as tx:
        await clusters.put(tx, "prod", "its dispatcher", -48 * 3600)  # stopped over a weekend
    async with store.read() as tx:
        assert [one.inventory.whole["cuda"] for one in await capacity.known(tx, settings)] == [{"": [8, 8]}]
    with pytest.raises(TooManyRanks, match="the cluster has 16 GPUs"):
        await submit(store, settings, 64, "cuda")


@pytest.mark.parametrize("polled", [True, False], ids=["its entry is old", "it has no entry"])
async def test_a_cluster_that_is_gone_for_good_does_not_count(store: Store, settings: Settings, polled: bool) -> None:
    """Its machines are shown as lost, and no job is accepted for them. After an hour without a dispatcher it still counts."""

    async def last_polled(hours: float) -> None:
        then = time.time() - hours * 3600
        async with store.write() as tx:
            await nodes.replace(tx, [{**node.model_dump(), "seen_at": then} for node in GPU_NODES], "gone")
            if polled:
                await clusters.put(tx, "gone", "its dispatcher", -hours * 3600)

    here = GPU_NODES[0].model_copy(update={"id": "here", "host": "here"})
    async with store.write() as tx:
        await nodes.replace(tx, [{**here.model_dump(), "seen_at": time.time()}], "prod")
        await capacity.remember(tx, settings.model_copy(update={"cluster": "prod"}), [here])
        await capacity.remember(tx, settings.model_copy(update={"cluster": "gone"}), GPU_NODES)
    await last_polled(hours=1)
    assert (await submit(store, settings, 16, "cuda")).state == State.QUEUED
    assert [node.alive for node in await all_nodes(store, settings)] == [True, True, True]
    await last_polled(hours=25)
    with pytest.raises(TooManyRanks, match="the cluster has 8 GPUs"):
        await submit(store, settings, 16, "cuda")
    shown = await all_nodes(store, settings)
    assert [(node.id, node.alive, node.in_use) for node in shown if node.cluster == "gone"] == [
        ("gpu-0", False, False),
        ("gpu-1", False, False),
    ]
    assert [(node.id, node.alive) for node in shown if node.cluster == "prod"] == [("here", True)]


async def test_devices_of_another_cluster_are_counted_by_the_settings_of_its_dispatcher(
    store: Store, settings: Settings
) -> None:
    """Not by those of the process that is asked, such as an API beside several clusters."""
    cluster = InProcessCluster(cpus=8)
    theirs = settings.model_copy(update={"cluster": "prod", "cpu_ranks_per_core": 1, "max_ranks": None})
    asked = settings.model_copy(update={"cpu_ranks_per_core": 4, "max_ranks": 64})
    await Dispatcher(store, theirs, cluster)._watch_nodes()
    for process in (theirs, asked):
        async with store.read() as tx:
            (prod,) = await capacity.known(tx, process)
        assert (prod.inventory.whole["cpu"], prod.inventory.max_ranks, prod.cpu_ranks_per_core) == ({"": [8]}, None, 1)
        assert [machine.capacity["cpu"] for machine in prod.inventory.machines] == [8]
        (shown,) = await all_nodes(store, process)
        assert [(device.kind, device.all) for device in shown.devices] == [("cpu", 8)]
        with pytest.raises(TooManyRanks, match="the cluster has 8 CPU ranks"):
            await submit(store, process, 9, "cpu")
    await Dispatcher(store, theirs.model_copy(update={"max_ranks": 32}), cluster)._watch_nodes()
    assert (await submit(store, asked.model_copy(update={"max_ranks": None}), 32, "cpu")).state == State.QUEUED


async def test_a_dispatcher_of_an_earlier_version_has_stored_no_settings(store: Store, settings: Settings) -> None:
    async with store.write() as tx:
        await clusters.put(tx, "prod", "its dispatcher", 15.0)
        await nodes.replace(tx, [{**GPU_NODES[0].model_dump(), "seen_at": time.time()}], "prod")
    async with store.read() as tx:
        (prod,) = await capacity.known(tx, settings.model_copy(update={"max_ranks": 64}))
    assert (prod.inventory.max_ranks, prod.cpu_ranks_per_core) == (64, settings.cpu_ranks_per_core)
