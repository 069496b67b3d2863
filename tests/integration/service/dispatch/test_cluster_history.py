"""What the dispatcher records of a cluster: once a minute its use, and each change of its nodes and of the gangs on them."""

import asyncio
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from harness.patience import PATIENCE_S

from shardyard.service import nodes as node_operations
from shardyard.service.dispatch import cluster_history
from shardyard.service.errors import InvalidCursor, NodeNotFound
from shardyard.service.ids import gang_name, new_job_id
from shardyard.service.queries import cluster
from shardyard.service.schemas.cluster import NodeChange, TimeRange
from shardyard.service.schemas.job import Job
from shardyard.service.settings import Settings
from shardyard.service.store import attempts, cluster_samples, node_history, nodes, system_samples
from shardyard.service.store.engine import Store
from shardyard.service.store.leases import Lease

from ..conftest import Submit

HOUR, DAY, WEEK = TimeRange.HOUR, TimeRange.DAY, TimeRange.WEEK
Row = dict[str, Any]


def node(id_: str, *, cpu: float = 4.0, gpu: float = 0.0, host: str = "", **more: Any) -> Row:
    """A living node as the dispatcher stores it."""
    labels = {"gpu_model": "", "zone": "", "rail": "", "domain": "", "image": ""}
    used = {"cpu_used": 0.0, "gpu_used": 0.0, "memory_bytes": 1, "host_memory_bytes": 1, "seen_at": 0.0}
    return {
        "id": id_,
        "host": host or id_,
        "alive": True,
        "cpu": cpu,
        "gpu": gpu,
        "gangs": [],
        **used,
        **labels,
        **more,
    }


def share(job: str, *, cpu: float = 0.0, gpu: float = 0.0, attempt: int = 1) -> Row:
    return {"gang": gang_name(job, attempt), "cpu": cpu, "gpu": gpu}


async def seen(store: Store, rows: Sequence[Row], now: float) -> None:
    """The dispatcher looks at the nodes."""
    async with store.write() as tx:
        before: list[Mapping[str, Any]] = [dict(row) for row in await nodes.all_nodes(tx, "default")]
        await nodes.replace(tx, rows)
        await cluster_history.note_changes(tx, "default", before, rows, now)


async def changed(store: Store, **wanted: Any) -> list[tuple[str, str]]:
    return [(one.node, one.kind) for one in (await cluster.changes(store, WEEK, **wanted)).items]


async def test_a_minute_is_recorded_once_also_by_two_dispatchers(store: Store, settings: Settings) -> None:
    await seen(store, [node("n1"), node("n2")], time.time())
    await asyncio.gather(*(cluster_history.record(store, settings) for _ in range(4)))
    found = await cluster.use(store, settings, WEEK)
    assert (found.width, found.nodes, found.cordoned) == (1800, [2.0], [0.0])
    (devices,) = found.devices
    assert (devices.kind, devices.all, devices.used, devices.free, devices.cordoned) == ("cpu", [32], [0], [32], [0])


async def test_users_and_teams_have_the_devices_of_their_gangs(
    store: Store, settings: Settings, submit: Submit
) -> None:
    mine, other = await submit(labels={"team": "search"}), await submit()
    rows = [
        node("n1", gpu=8, gpu_used=6, gangs=[share(mine.id, gpu=4), share(other.id, gpu=2)]),
        node("n2", cpu=2, cpu_used=1, gangs=[share(mine.id, cpu=1), share(new_job_id(1.0), cpu=0.5)]),
    ]
    await seen(store, rows, time.time())
    await node_operations.cordon(store, settings, "n1", None, "fan", "eve")
    await cluster_history.record(store, settings)
    found = await cluster.use(store, settings, DAY)
    gpus, cpus = found.devices
    assert (gpus.kind, gpus.all, gpus.used, gpus.free, gpus.cordoned) == ("cuda", [8], [6], [0], [2])
    assert (cpus.kind, cpus.used) == ("cpu", [4])
    assert [(one.by, one.kind, one.name, one.used) for one in found.holders] == [
        ("user", "cuda", "tester", [6.0]),
        ("user", "cpu", "tester", [4.0]),
        ("team", "cpu", "search", [4.0]),
        ("team", "cuda", "search", [4.0]),
    ]


async def test_of_many_users_those_with_the_fewest_devices_are_one(store: Store, settings: Settings) -> None:
    sums = {f"user/cpu/u{number:02}": float(number) for number in range(1, 4)}
    now = time.time()
    async with store.write() as tx:
        whole = {"nodes/alive": 1.0, "user/cpu/": 7.0, **sums}
        await cluster_samples.add(tx, "default", now, {cluster_samples.WHOLE: whole})
        await cluster_samples.add(tx, "default", now, {cluster_samples.WHOLE: {"nodes/alive": 1.0}})
    holders = (await cluster.use(store, settings, WEEK)).holders
    assert [(one.name, one.used) for one in holders] == [("", [3.5]), ("u03", [1.5]), ("u02", [1.0]), ("u01", [0.5])]


async def test_a_node_has_its_own_and_its_gpus_metrics(store: Store, settings: Settings) -> None:
    now = time.time()
    await seen(store, [node("n1", gpu=2)], now)
    uses = {"n1": {"cpu": 40.0, "memory_used": 5e9}, "n1/0": {"gpu_utilization": 90.0}, "n1/1": {"gpu_power": 300.0}}
    async with store.write() as tx:
        await system_samples.put_nodes(tx, uses, now)
    await cluster_history.record(store, settings)
    found = await cluster.node_use(store, "n1", HOUR)
    assert [(one.name, one.gpu, one.unit, one.mean) for one in found.curves] == [
        ("cpu", None, "percent of all CPUs", [40.0]),
        ("memory_used", None, "bytes", [5e9]),
        ("devices/cpu/used", None, "CPU ranks", [0.0]),
        ("devices/cuda/used", None, "GPUs", [0.0]),
        ("gpu_utilization", "0", "percent", [90.0]),
        ("gpu_power", "1", "W", [300.0]),
    ]
    with pytest.raises(NodeNotFound):
        await cluster.node_use(store, "n\0", HOUR)


async def test_a_week_of_minutes_takes_a_bounded_number_of_rows(store: Store) -> None:
    """Each width keeps its newest buckets; a month without a sample leaves none of the others."""
    start = 1800.0 * 1_000_000
    async with store.write() as tx:
        for at in range(0, 130 * 60, 60):
            await cluster_samples.add(tx, "default", start + at, {"n1": {"cpu": float(at)}})
        await cluster_samples.remove_old(tx, start + 129 * 60)
        many = {
            width: len(await cluster_samples.read(tx, {"default"}, "n1", width, 0)) for width in cluster_samples.KEPT
        }
        assert many == {60: 120, 300: 26, 1800: 5}
        await cluster_samples.remove_old(tx, start + 30 * 86_400)
        assert not await cluster_samples.read(tx, {"default"}, "n1", 1800, 0)
    longest = {HOUR: 3600, DAY: 86_400, WEEK: 7 * 86_400}
    assert all(cluster_samples.KEPT[cluster.WIDTHS[span]] * cluster.WIDTHS[span] > longest[span] for span in TimeRange)
    assert all(seconds / cluster.WIDTHS[span] <= 336 for span, seconds in longest.items())


async def test_nodes_join_are_lost_and_return(store: Store, settings: Settings) -> None:
    now = time.time()
    await seen(store, [node("n1", host="h1"), node("n2")], now - 300)
    await seen(store, [node("n1", host="h1", alive=False), node("n2")], now - 200)
    await seen(store, [node("n1", host="h1", alive=False)], now - 100)
    await seen(store, [node("n3", host="h1")], now - 50)
    await seen(store, [node("n3", host="h1")], now - 40)
    assert await changed(store) == [
        ("n3", "returned"),
        ("n2", "lost"),
        ("n1", "lost"),
        ("n2", "joined"),
        ("n1", "joined"),
    ]
    back, listed, reported = (await cluster.changes(store, HOUR, limit=3)).items
    assert back.message == "The host was lost 2 min before."
    assert listed.message == "The cluster no longer lists it; no gang was on it."
    assert reported.message == "Ray reports that it is dead; no gang was on it."
    assert await changed(store, node="n1") == [("n1", "lost"), ("n1", "joined")], "a lost node is found by its id"
    async with store.write() as tx:
        await node_history.remove_old(tx, now - 150)
    assert await changed(store) == [("n3", "returned"), ("n2", "lost")]


async def test_changes_and_cordons_are_pages_of_one_list(store: Store, settings: Settings) -> None:
    await seen(store, [node("n1")], time.time() - 10)
    for number in range(3):
        await node_operations.cordon(store, settings, "n1", None if number else 1e-6, f"why {number}", "eve")
    await node_operations.uncordon(store, settings, "n1", "bob")
    read: list[NodeChange] = []
    after = None
    while True:
        page = await cluster.changes(store, HOUR, after=after, limit=2)
        read += page.items
        after = page.next
        if after is None:
            break
    whole = (await cluster.changes(store, HOUR)).items
    assert read == whole
    kinds = ["uncordoned", "cordoned", "uncordoned", "cordoned", "cordon_expired", "cordoned", "joined"]
    assert sorted(one.kind for one in whole) == sorted(kinds)
    assert whole[0].actor == "bob" and whole[-1].kind == "joined"
    assert {one.message for one in whole if one.kind == "cordoned"} == {"why 0", "why 1", "why 2"}
    with pytest.raises(InvalidCursor):
        await cluster.changes(store, HOUR, after="1.0/n1")


async def test_what_ran_on_a_node_and_when(store: Store, settings: Settings, placed: tuple[Job, Lease]) -> None:
    job, _ = placed
    now = time.time()
    mine = share(job.id, cpu=0.5)
    await seen(store, [node("n1"), node("n2")], now - 400)
    await seen(store, [node("n1", gangs=[mine]), node("n2")], now - 300)
    await seen(store, [node("n1", gangs=[mine]), node("n2", gangs=[mine, share(new_job_id(1.0), cpu=1)])], now - 200)
    await seen(store, [node("n1"), node("n2", gangs=[mine])], now - 100)
    (first,) = (await cluster.past_attempts(store, settings, HOUR, node="n1")).items
    assert (first.job, first.attempt, first.actor, first.devices, first.outcome) == (job.id, 1, "tester", 2.0, None)
    assert first.device_s == pytest.approx(400.0, abs=0.2)
    assert (await cluster.past_attempts(store, settings, HOUR, node="n2")).items == []
    async with store.write() as tx:
        await attempts.end(tx, job.id, 1, "succeeded", now - 50)
        await node_history.end_with_attempts(tx, now)
    (second,) = (await cluster.past_attempts(store, settings, HOUR, node="n2")).items
    assert (second.outcome, second.device_s) == ("succeeded", pytest.approx(300.0, abs=0.2))


async def test_on_a_node_nothing_ran_longer_than_its_attempt(
    store: Store, settings: Settings, placed: tuple[Job, Lease]
) -> None:
    """After a night with the machine off, the next look finds the gang gone; a gang that is still being removed ends with its attempt."""
    job, _ = placed
    now = time.time()
    gangs = [share(job.id, cpu=0.5, attempt=number) for number in (1, 2)]
    await seen(store, [node("n1", gangs=gangs)], now - 40_000)
    async with store.write() as tx:
        same = {"job_id": job.id, "gang": "g", "device": "cpu", "nodes": [], "devices": None}
        await attempts.insert(tx, {**same, "number": 2, "started_at": now - 40_000})
        await attempts.end(tx, job.id, 1, "gang_lost", now - 36_000)
        await attempts.end(tx, job.id, 2, "gang_lost", now - 1000)
    await seen(store, [node("n1")], now - 10)
    pages = [await cluster.past_attempts(store, settings, DAY, node="n1", limit=1)]
    pages.append(await cluster.past_attempts(store, settings, DAY, node="n1", limit=1, after=pages[0].next))
    assert pages[1].next is None
    second, first = (page.items[0] for page in pages)
    assert (first.attempt, first.device_s) == (1, pytest.approx(2 * 4000.0, abs=0.2))
    assert first.until.timestamp() == pytest.approx(now - 36_000, abs=0.1)
    assert (second.attempt, second.device_s) == (2, pytest.approx(2 * 39_000.0, abs=0.2))
    assert second.until.timestamp() == pytest.approx(now - 1000, abs=0.1)
    late = (await cluster.past_attempts(store, settings, HOUR, node="n1")).items
    assert [one.attempt for one in late] == [2]


async def test_of_a_share_that_grows_the_larger_one_is_kept(
    store: Store, settings: Settings, placed: tuple[Job, Lease]
) -> None:
    """Ray moves the part on a lost node to one where the gang is."""
    job, _ = placed
    now = time.time()
    four, eight = [share(job.id, gpu=4, cpu=1)], [share(job.id, gpu=8, cpu=1)]
    a, b = node("a", gpu=8, gangs=four), node("b", gpu=8, gangs=four)
    await seen(store, [a, b], now - 3000)
    for at, gangs in ((2990, eight), (2980, four), (2970, [share(job.id, gpu=6, cpu=1)]), (10, [])):
        await seen(store, [node("b", gpu=8, gangs=gangs)], now - at)
    (first,) = (await cluster.past_attempts(store, settings, HOUR, node="b")).items
    assert (first.devices, first.device_s) == (8.0, pytest.approx(8 * 2990.0))
    (lost,) = (await cluster.past_attempts(store, settings, HOUR, node="a")).items
    assert (lost.devices, lost.device_s) == (4.0, pytest.approx(4 * 10.0))


async def test_a_gang_that_comes_back_to_a_node_is_on_it_again(
    store: Store, settings: Settings, placed: tuple[Job, Lease]
) -> None:
    job, _ = placed
    now = time.time()
    for at, gangs in ((-30, [share(job.id, cpu=1)]), (-20, []), (-10, [share(job.id, cpu=1)])):
        await seen(store, [node("n1", gangs=gangs)], now + at)
    assert (await cluster.past_attempts(store, settings, HOUR, node="n1")).items == []


async def test_samples_of_nodes_wait_for_no_call_that_blocks(store: Store) -> None:
    """Storage that does not answer may keep all threads of `asyncio.to_thread`; a transaction does not wait for one."""
    answered = threading.Event()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    blocked = asyncio.create_task(asyncio.to_thread(answered.wait))
    try:
        async with asyncio.timeout(PATIENCE_S), store.write() as tx:
            await cluster_samples.add(tx, "default", 100_000.0, {"n1": {"cpu": 1.0}})
        assert not blocked.done()
    finally:
        answered.set()
        await blocked
