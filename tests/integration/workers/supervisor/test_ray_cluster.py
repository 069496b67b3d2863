import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from harness.patience import PATIENCE_S

from shardyard.service.cluster.ray_cluster import Cluster
from shardyard.service.cluster.ray_head import Head, marked
from shardyard.service.errors import ClusterError, GangLost
from shardyard.service.settings import Settings
from shardyard.workers.messages.gang_spec import GangSpec
from shardyard.workers.supervisor.actor import Supervisor
from shardyard.workers.supervisor.ranks.placement_group import NAMESPACE

from .conftest import HERE, embedded
from .following import follow, gang_spec, gone, is_step, lives, pids, states

# ruff: noqa: ASYNC220, ASYNC240
pytestmark = [pytest.mark.full, pytest.mark.asyncio(loop_scope="module")]  # a head of their own


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Its own head, which does not outlive this module."""
    return embedded(tmp_path_factory.mktemp("data"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(settings: Settings) -> AsyncIterator[Cluster]:
    """Not connected: each test says how. Whatever they leave is ended."""
    cluster = Cluster(settings, entry="entries:work")
    try:
        yield cluster
    finally:
        await cluster.shut_down()


async def test_a_killed_control_plane_leaves_the_gang_to_the_next_one(cluster: Cluster, settings: Settings) -> None:
    gang = "shardyard-orphan-1"
    command = [sys.executable, str(HERE / "driver.py"), str(settings.data_dir), gang]
    driver = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    try:
        seen = [[int(word) for word in driver.stdout.readline().split()] for _ in range(10)]
        while seen[-1][1] < 5:
            seen.append([int(word) for word in driver.stdout.readline().split()])
    finally:
        driver.send_signal(signal.SIGKILL)
        seen += [[int(word) for word in line.split()] for line in driver.stdout.read().splitlines() if line.count(" ")]
        driver.wait()
        driver.stdout.close()

    await cluster.connect()
    assert await cluster.gangs() == [gang]
    events = await follow(cluster, gang, after=seen[-1][0], until=is_step(seen[-1][1] + 20))
    assert events[0]["seq"] == seen[-1][0] + 1
    steps = [step for _, step in seen if step] + [e["data"]["step"] for e in events if e["kind"] == "step"]
    assert steps == list(range(1, len(steps) + 1))
    await cluster.stop(gang, "cancel")
    assert states(await follow(cluster, gang, after=events[-1]["seq"])) == ["cancelled"]
    await cluster.close_gang(gang)
    assert await cluster.gangs() == []


async def test_the_nodes_are_reported(cluster: Cluster) -> None:
    await cluster.connect()
    (node,) = await cluster.nodes()
    assert node.alive and node.cpu >= 1 and node.gpu == 0 and node.memory_bytes > 0


async def test_ranks_without_a_supervisor_end_themselves(cluster: Cluster, tmp_path: Path) -> None:
    await cluster.connect()
    import ray

    run = {"steps": 100_000, "pause": 0.01, "folder": str(tmp_path)}
    name = "shardyard-widowed-1"
    gang = GangSpec(name, run, 2, entry="entries:work", lease_s=2.0)
    supervisor = ray.remote(Supervisor).options(name=name, namespace=NAMESPACE, lifetime="detached", num_cpus=0)
    handle = supervisor.remote(gang.to_json())
    await handle.begin.remote()
    await follow(cluster, name, until=is_step(2))
    ray.kill(handle, no_restart=True)
    assert await gone(pids(tmp_path, 2), within_s=PATIENCE_S)
    with pytest.raises(GangLost):
        await cluster.pull(name, 0, 0.0)
    await cluster.close_gang(name)
    assert await cluster.gangs() == []


async def test_a_dead_head_is_an_error_and_the_next_connect_starts_another(
    cluster: Cluster, settings: Settings
) -> None:
    await cluster.connect()
    record = json.loads((settings.data_dir / "cluster.json").read_text())
    gang = gang_spec("lost", ranks=2, steps=100_000, pause=0.01)
    await cluster.start_gang(gang)
    await follow(cluster, gang.name, until=is_step(1))
    processes = sorted(process.pid for process in marked(record["folder"]))  # the next head may have the same folder
    for name in ("gcs", "raylet"):
        os.kill(record[name]["pid"], signal.SIGKILL)
    assert await gone([record["gcs"]["pid"], record["raylet"]["pid"]])
    with pytest.raises(ClusterError):
        await cluster.pull(gang.name, 0, 0.2)
    await cluster.connect()
    assert json.loads((settings.data_dir / "cluster.json").read_text())["address"] != record["address"]
    with pytest.raises(GangLost):
        await cluster.pull(gang.name, 0, 0.0)
    assert await gone(processes, within_s=PATIENCE_S)


async def test_shut_down_leaves_nothing(cluster: Cluster, settings: Settings, tmp_path: Path) -> None:
    await cluster.connect()
    record = json.loads((settings.data_dir / "cluster.json").read_text())
    host, port = record["address"].split(":")
    gang = gang_spec("running", ranks=4, steps=100_000, pause=0.01, folder=str(tmp_path))
    await cluster.start_gang(gang)
    await follow(cluster, gang.name, until=is_step(1))
    processes = sorted(process.pid for process in marked(record["folder"]))
    assert {*pids(tmp_path), record["raylet"]["pid"], record["gcs"]["pid"]} <= set(processes)
    assert all(_is_loopback(process) for process in processes)

    await cluster.shut_down()

    assert not [pid for pid in processes if lives(pid)]
    with pytest.raises(ConnectionRefusedError), socket.create_connection((host, int(port)), timeout=1):
        pass
    assert not Path(record["folder"]).exists()
    left = {path.name for path in settings.data_dir.iterdir()}
    assert left == {"cluster.lock"}


def _is_loopback(pid: int) -> bool:
    import psutil

    try:
        listening = [c for c in psutil.Process(pid).net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    except psutil.NoSuchProcess:
        return True
    return all(c.laddr.ip.removeprefix("::ffff:") == "127.0.0.1" for c in listening)


async def test_an_interrupted_start_is_cleared_away(settings: Settings, tmp_path: Path) -> None:
    folder = tmp_path / "half"
    folder.mkdir()
    env = os.environ | {"SHARDYARD_NODE": str(folder)}
    stray = subprocess.Popen(["sleep", "600"], env=env)
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        record = {"folder": str(folder), "boot": boot, "address": None, "raylet": None, "gcs": None}
        (settings.data_dir / "cluster.json").write_text(json.dumps(record))
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.to_thread(Head(settings.data_dir).shut_down)
        assert stray.wait(timeout=PATIENCE_S) == -signal.SIGKILL
    finally:
        stray.kill()
        stray.wait()
    assert not folder.exists()
    assert not (settings.data_dir / "cluster.json").exists()


async def test_a_connection_leaves_sigterm_to_the_control_plane(cluster: Cluster) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    try:
        await cluster.connect()
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(PATIENCE_S):
            await stop.wait()
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
