"""Follows a gang as a dispatcher would: its events by number, and what processes it leaves."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from harness.patience import PATIENCE_S
from harness.process_ownership import rank_actors

from shardyard.service.cluster.ray_cluster import Cluster
from shardyard.service.cluster.ray_head import marked
from shardyard.service.errors import ClusterError
from shardyard.service.settings import Settings
from shardyard.workers.messages.gang_spec import GangSpec
from shardyard.workers.supervisor.ranks.placement_group import NAMESPACE

Event = dict[str, Any]
FINAL = ("succeeded", "failed", "cancelled")


def gang_spec(name: str, ranks: int = 4, **run: Any) -> GangSpec:
    return GangSpec(f"shardyard-{name}-1", run, ranks, 1, "cpu")


async def follow(
    cluster: Cluster, gang: str, after: int = 0, until: Any = None, timeout_s: float = PATIENCE_S
) -> list[Event]:
    """Events after `after` until the final state, or until `until(event)` holds."""
    events: list[Event] = []
    deadline = time.monotonic() + timeout_s
    while not events or not _ends(events[-1], until):
        assert time.monotonic() < deadline, events[-5:]
        for event in await _pull(cluster, gang, after):
            events.append(event)
            after = event["seq"]
            if _ends(event, until):
                break
    return events


async def _pull(cluster: Cluster, gang: str, after: int) -> list[Event]:
    """Asks again, as the dispatcher does, when there is no answer: the supervisor may be starting again."""
    try:
        return (await cluster.pull(gang, after, 5.0)).events
    except ClusterError:
        await asyncio.sleep(0.1)
        return []


def _ends(event: Event, until: Any) -> bool:
    return bool(until and until(event)) or is_final(event)


def actors_of(settings: Settings) -> list[psutil.Process]:
    """The rank actors of this test's head: others' tests may run beside it."""
    ours = {process.pid for process in marked(str((settings.data_dir / "ray").resolve()))}
    return [process for process in rank_actors() if process.pid in ours]


def is_final(event: Event) -> bool:
    return event["kind"] == "state" and event["data"]["state"] in FINAL


def is_step(number: int) -> Any:
    return lambda event: event["kind"] == "step" and event["data"]["step"] >= number


def states(events: list[Event]) -> list[str]:
    return [event["data"]["state"] for event in events if event["kind"] == "state"]


def pids(folder: Path, ranks: int = 4) -> list[int]:
    return [int((folder / f"{rank}.pid").read_text()) for rank in range(ranks)]


def lives(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def gone(pids: list[int], within_s: float = PATIENCE_S) -> bool:
    deadline = time.monotonic() + within_s
    while any(lives(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.05)
    return True


async def kill_supervisor(gang: str, meanwhile: Callable[[], Any] = lambda: None) -> None:
    """`meanwhile` is done when it is stopped and not yet dead."""
    import ray

    pid = (await ray.get_actor(gang).status.remote())["pid"]
    os.kill(pid, signal.SIGSTOP)
    meanwhile()
    os.kill(pid, signal.SIGKILL)


async def standing_by(gang: str) -> str:
    """The name of the gang's one spare, once it stands by."""
    import ray
    from ray.exceptions import RayActorError

    async with asyncio.timeout(PATIENCE_S):
        while True:
            with contextlib.suppress(RayActorError):  # the supervisor may be starting again
                (spare,) = (await ray.get_actor(gang).status.remote())["spares"]
                if spare["node"] is not None:
                    return str(spare["name"])
            await asyncio.sleep(0.05)


def written(gang: str) -> list[bytes]:
    """What is in the gang's journal."""
    from ray.experimental import internal_kv

    return internal_kv._internal_kv_list(f"{gang}/", namespace=NAMESPACE)


async def closed(cluster: Cluster, gang: str, pids: list[int]) -> None:
    """Close a gang and see that nothing of it is left: actors, placement group, CPUs, trainers, journal."""
    await cluster.close_gang(gang)
    assert await gone(pids)
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        nodes = await cluster.nodes()
        if gang not in await cluster.gangs() and not written(gang) and sum(node.cpu_used for node in nodes) < 1e-6:
            return
        await asyncio.sleep(0.05)
    raise AssertionError((await cluster.gangs(), nodes))
