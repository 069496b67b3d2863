"""What gangs sample: stored exactly once with their events, bounded in time, and read by node and rank."""

import time
from typing import Any

import pytest

from shardyard.service import nodes as node_queries
from shardyard.service.dispatch.event_ingest import ingest
from shardyard.service.errors import InvalidCursor, JobNotFound
from shardyard.service.queries import jobs, system
from shardyard.service.queries.steps import metrics
from shardyard.service.schemas.job import Job
from shardyard.service.schemas.node import ClusterNode
from shardyard.service.settings import Settings
from shardyard.service.store import nodes, system_samples
from shardyard.service.store.engine import Store
from shardyard.service.store.leases import Lease
from shardyard.workers.messages.event import SystemEvent, to_json

from ..gang_events import event_batch, state

GIB = 1 << 30


def sampled(cpu: float, ranks: int = 2, node: str = "n1") -> tuple[str, Any]:
    event = SystemEvent(
        nodes={node: {"cpu": cpu / 2, "memory_used": 3.0 * GIB, "mood": 1.0}},
        ranks={"cpu": tuple(cpu + rank for rank in range(ranks)), "memory": (float(GIB),) * ranks, "mood": (1.0,)},
    )
    return "system", to_json(event)


def batch_at(times: list[float], *events: tuple[str, Any]) -> list[dict[str, Any]]:
    return [{**event, "ts": ts} for event, ts in zip(event_batch(*events), times, strict=True)]


async def test_a_batch_that_comes_again_changes_nothing(store: Store, placed: tuple[Job, Lease]) -> None:
    job, lease = placed
    times = [1000.0, 1000.0, 1001.0, 1004.0, 1006.0]
    batch = batch_at(times, state("starting"), state("running"), sampled(50.0), sampled(150.0), sampled(70.0))
    for cut in (3, 2, 4, 4, 5, 5):
        await ingest(store, lease, 1, batch[:cut])
    found = await system.curves(store, job.id, "rank/cpu")
    assert (found.unit, found.width, found.starts) == ("percent of one CPU", 5, [1000, 1005])
    first, second = found.curves
    assert (first.rank, first.mean, first.low, first.high) == (0, [100.0, 70.0], [50.0, 70.0], [150.0, 70.0])
    assert (second.rank, second.node, second.mean, second.last) == (1, None, [101.0, 71.0], 71.0)
    assert {one.name for one in found.metrics} == {"node/cpu", "node/memory_used", "rank/cpu", "rank/memory"}
    (node,) = (await system.curves(store, job.id, "node/cpu")).curves
    assert (node.node, node.rank, node.mean) == ("n1", None, [50.0, 35.0])


async def test_a_clock_that_is_ahead_removes_no_series(store: Store, placed: tuple[Job, Lease]) -> None:
    job, lease = placed
    now = time.time()
    events = [state("starting"), state("running"), sampled(50.0), sampled(60.0), sampled(70.0)]
    await ingest(store, lease, 1, batch_at([now, now, now - 60, now + 86_400, now], *events))
    found = await system.curves(store, job.id, "rank/cpu")
    assert found.curves[0].mean[0] == 50.0, "the day ahead is not the newest hour"
    assert found.starts[-1] <= time.time()


async def test_samples_of_a_node_whose_clock_is_behind_follow_those_of_the_attempt_before(
    store: Store, placed: tuple[Job, Lease]
) -> None:
    job, lease = placed
    now = time.time()
    begun = [state("starting"), state("running")]
    await ingest(store, lease, 1, batch_at([now - 90, now - 90, now - 60], *begun, sampled(50.0)))
    later = batch_at([now - 7200 - 30], sampled(70.0))
    await ingest(store, lease, 1, [{**event, "seq": 4} for event in later], behind_s=7200.0)
    found = await system.curves(store, job.id, "rank/cpu")
    assert (found.width, found.curves[0].mean[0], found.curves[0].mean[-1]) == (5, 50.0, 70.0)
    assert found.starts[-1] - found.starts[0] == pytest.approx(30.0, abs=5.0)


async def test_numbers_that_are_too_large_are_left_out(store: Store, placed: tuple[Job, Lease]) -> None:
    """Their sum would be infinite, which PostgreSQL refuses in JSON, with the batch."""
    job, lease = placed
    await ingest(store, lease, 1, event_batch(state("starting"), state("running"), sampled(1.7e308), sampled(5.0)))
    use = (await jobs.get_job(store, job.id)).use
    assert use is not None and use.cpu == 11.0
    (first, _) = (await system.curves(store, job.id, "rank/cpu")).curves
    assert first.high in (None, [5.0]) and first.mean == [5.0]
    await ingest(store, lease, 1, event_batch(state("starting"), state("running"), *[sampled(1.7e308)] * 3))
    use = (await jobs.get_job(store, job.id)).use
    assert use is not None and use.cpu is None and use.memory == 2.0 * GIB


async def test_samples_are_no_progress_and_no_history(store: Store, placed: tuple[Job, Lease]) -> None:
    job, lease = placed
    await ingest(store, lease, 1, event_batch(state("starting"), state("running")))
    before = await jobs.get_job(store, job.id)
    await ingest(store, lease, 1, event_batch(state("starting"), state("running"), sampled(50.0)))
    after = await jobs.get_job(store, job.id)
    assert (after.cursor, after.progress) == (before.cursor, before.progress)
    assert (await metrics(store, job.id)).points == []
    assert after.use is not None
    assert (after.use.cpu, after.use.memory, after.use.gpu) == (101.0, 2.0 * GIB, None)


async def test_a_job_keeps_its_series_and_no_use_when_it_has_ended(store: Store, placed: tuple[Job, Lease]) -> None:
    job, lease = placed
    batch = event_batch(state("starting"), state("running"), sampled(50.0), state("succeeded"))
    await ingest(store, lease, 1, batch)
    assert (await jobs.get_job(store, job.id)).use is None
    assert len((await system.curves(store, job.id, "rank/memory")).curves) == 2


async def test_a_node_shows_what_it_uses_now(store: Store, settings: Settings, placed: tuple[Job, Lease]) -> None:
    _, lease = placed
    seen = {"zone": "", "rail": "", "domain": "", "seen_at": 1.0}
    rows = [ClusterNode(id=one, host=one, alive=True, cpu=2, gpu=0).model_dump() | seen for one in ("n1", "n2")]
    async with store.write() as tx:
        await nodes.replace(tx, rows)
        await system_samples.put_nodes(tx, {"n2": {"cpu": 1.0}}, time.time() - 61)
    await ingest(store, lease, 1, event_batch(state("starting"), state("running"), sampled(50.0)))
    first, second = await node_queries.all_nodes(store, settings)
    assert first.use is not None
    assert (first.use.cpu, first.use.memory_used, first.use.disk_full) == (25.0, 3.0 * GIB, None)
    assert second.use is None, "an old sample does not say what is used now"


async def test_many_ranks_are_read_by_pages(store: Store, placed: tuple[Job, Lease]) -> None:
    job, lease = placed
    await ingest(store, lease, 1, event_batch(state("starting"), state("running"), sampled(1.0, ranks=50)))
    seen: list[int | None] = []
    after = None
    while True:
        page = await system.curves(store, job.id, "rank/cpu", after=after)
        seen += [curve.rank for curve in page.curves]
        after = page.next
        if after is None:
            break
    assert seen == list(range(50))
    with pytest.raises(InvalidCursor):
        await system.curves(store, job.id, "rank/cpu", after="n1")


async def test_without_a_job_or_a_sample(store: Store, placed: tuple[Job, Lease]) -> None:
    job, _ = placed
    empty = await system.curves(store, job.id, "node/cpu")
    assert (empty.starts, empty.curves, empty.metrics) == ([], [], [])
    with pytest.raises(JobNotFound):
        await system.curves(store, "no-such", "node/cpu")


async def test_a_frame_has_a_column_for_each_rank(store: Store, placed: tuple[Job, Lease]) -> None:
    job, lease = placed
    times = [1000.0, 1000.0, 1001.0]
    await ingest(store, lease, 1, batch_at(times, state("starting"), state("running"), sampled(50.0)))
    frame = (await system.curves(store, job.id, "rank/cpu")).to_pandas()
    assert frame.index.name == "time"
    assert str(frame.index[0]) == "1970-01-01 00:16:40+00:00"
    assert frame.loc[frame.index[0]].to_dict() == {0: 50.0, 1: 51.0}


async def test_gpus_are_kept_by_node_and_not_in_the_jobs_series(
    store: Store, settings: Settings, placed: tuple[Job, Lease]
) -> None:
    job, lease = placed
    uses = {"n1": {"cpu": 1.0}, "n1/0": {"gpu_power": 300.0, "gpu_clock": 1.0}, "n1/0/0": {}, "n" * 90 + "/1": {}}
    event = "system", to_json(SystemEvent(nodes=uses, ranks={"cpu": (1.0,)}))
    await ingest(store, lease, 1, event_batch(state("starting"), state("running"), event))
    async with store.read() as tx:
        found = await system_samples.of_nodes(tx, 0.0)
    assert {key: use.keys() - {"at"} for key, use in found.items()} == {"n1": {"cpu"}, "n1/0": {"gpu_power"}}
    assert [one.node for one in (await system.curves(store, job.id, "node/cpu")).curves] == ["n1"]
