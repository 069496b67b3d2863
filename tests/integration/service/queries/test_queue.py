"""The queue in its order and what has devices, in pages that read no more than they show; and device time, by user."""

import time
from collections.abc import Sequence
from typing import Any

import pytest
from harness.databases import POSTGRESQL_IN_FULL
from harness.query_plans import query_plan
from sqlalchemy import Select, text

from shardyard.service.dispatch.admission import admit
from shardyard.service.errors import InvalidCursor
from shardyard.service.ids import new_job_id
from shardyard.service.queries import cluster, jobs, queue
from shardyard.service.schemas.cluster import PastAttempt, TimeRange
from shardyard.service.schemas.job import Job
from shardyard.service.schemas.job_order import Order, Sort
from shardyard.service.settings import Settings
from shardyard.service.states import HOLDING
from shardyard.service.store import attempts, cluster_samples, clusters, node_history
from shardyard.service.store import jobs as job_rows
from shardyard.service.store import queue as queue_rows
from shardyard.service.store.cluster_tables import cluster_samples as samples
from shardyard.service.store.cluster_tables import gang_nodes, removed_attempts
from shardyard.service.store.engine import Store
from shardyard.service.store.leases import Lease
from shardyard.service.store.tables import attempts as attempt_table
from shardyard.service.store.tables import jobs as job_table

from ..conftest import Submit

MANY = 10_000
DAY = TimeRange.DAY
#: A cluster that is gone, and when it went.
GONE = {"west": 5.0}


async def test_waiting_jobs_are_read_in_order_with_their_reasons(
    store: Store, settings: Settings, placed: tuple[Job, Lease], submit: Submit
) -> None:
    running, lease = placed
    waiting = [await submit(name=f"w{number}", ranks=8 - number % 2, spares=number % 2) for number in range(3)]
    await admit(store, settings, "a", None)
    first = await queue.waiting(store, limit=2)
    assert [(one.position, one.job, one.ranks, one.spares) for one in first.items] == [
        (1, waiting[0].id, 8, 0),
        (2, waiting[1].id, 7, 1),
    ]
    assert first.total == 3 and first.next == waiting[1].id
    rest = await queue.waiting(store, after=first.next)
    assert [(one.position, one.name) for one in rest.items] == [(3, "w2")] and rest.next is None
    assert all(one.reason and one.message for one in (*first.items, *rest.items))
    assert first.items[0].since == waiting[0].created_at
    (one,) = (await queue.running(store)).items
    assert (one.job, one.state, one.devices, one.device, one.nodes) == (running.id, "placing", 1, "cpu", 0)
    async with store.write() as tx:
        await node_history.begin(tx, {(running.id, 1, "n1"): {"cpu": 0.25, "gpu": 0.0}}, time.time())
    assert (await queue.running(store)).items[0].nodes == 1
    assert lease.job_id == one.job


@POSTGRESQL_IN_FULL
async def test_a_job_that_was_placed_waits_since_its_last_attempt_ended(
    store: Store, placed: tuple[Job, Lease]
) -> None:
    """Its next attempt has a time only as long as that is to come."""
    job, _ = placed
    later = float(round(time.time()) + 3600)
    async with store.write() as tx:
        await attempts.end(tx, job.id, 1, "node_lost", 5000.0)
        await job_rows.set_columns(tx, job.id, {"state": "queued", "retry_at": later})
    (one,) = (await queue.waiting(store)).items
    assert one.retry_at is not None
    assert (one.since.timestamp(), one.retry_at.timestamp(), one.attempt) == (5000.0, later, 1)
    assert (await queue.running(store)).items == []
    async with store.write() as tx:
        await job_rows.set_columns(tx, job.id, {"retry_at": 6000.0})
    (one,) = (await queue.waiting(store)).items
    assert one.retry_at is None


@POSTGRESQL_IN_FULL
async def test_places_go_on_beyond_the_jobs_that_are_counted(
    store: Store, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_rows, "MOST_COUNTED", 2)
    for _ in range(5):
        await submit()
    places, after = [], None
    while not places or after is not None:
        page = await queue.waiting(store, after=after, limit=2)
        assert page.total == 2
        places += [one.position for one in page.items]
        after = page.next
    assert places == [1, 2, 3, 4, 5]


@POSTGRESQL_IN_FULL
@pytest.mark.parametrize("after", ["x", "job-1", "job-\0"])
async def test_other_texts_are_no_place_in_the_queue(store: Store, after: str) -> None:
    for read in (queue.waiting, queue.running):
        with pytest.raises(InvalidCursor):
            await read(store, after=after)


async def test_device_time_counts_the_part_within_the_range(store: Store, placed: tuple[Job, Lease]) -> None:
    job, _ = placed
    now = time.time()
    async with store.write() as tx:
        await tx.execute(attempt_table.update().values(started_at=now - 2 * 86_400, devices=3))
        old = {"job_id": job.id, "gang": "g", "device": "cuda", "nodes": [], "cluster": "default"}
        for number, (began, ended) in enumerate([(-7200, -3600), (-200_000, -100_000), (-9000, None)], start=2):
            times = {"started_at": now + began, "ended_at": None if ended is None else now + ended}
            await attempts.insert(tx, {**old, "number": number, "devices": 2, **times})
    found = {one.device: (one.actor, one.jobs, one.device_s) for one in (await cluster.device_times(store, DAY)).items}
    assert found["cpu"] == ("tester", 1, pytest.approx(3 * 86_400, abs=30)), "it runs, and began before the range"
    assert found["cuda"] == ("tester", 1, pytest.approx(7200, abs=1)), "an attempt that is left open is none that runs"


@POSTGRESQL_IN_FULL
@pytest.mark.parametrize(("days", "counted"), [(0.9, 3.0), (1.5, 1.5), (9.0, 0.5)])
async def test_device_time_of_a_cluster_that_is_gone_ends_with_it(
    store: Store, settings: Settings, placed: tuple[Job, Lease], days: float, counted: float
) -> None:
    """Its job keeps its state, as the cluster may come back; also after another cluster's dispatcher has forgotten its nodes."""
    job, _ = placed
    now, day = time.time(), 86_400.0
    began = now - (days + 0.5 if days > 3 else 3.0) * day
    async with store.write() as tx:
        await tx.execute(attempt_table.update().values(started_at=began, cluster="west"))
        await job_rows.set_columns(tx, job.id, {"cluster": "west"})
        await clusters.put(tx, "west", "a", -days * day)
        await clusters.remove_old(tx, 8 * day, but="east")
    in_range = [one.device_s for one in (await cluster.device_times(store, TimeRange.WEEK)).items]
    assert in_range == ([] if days > 7 else [pytest.approx(counted * day, abs=600)])
    assert (await jobs.get_job(store, job.id)).device_s == pytest.approx(counted * day, abs=600)
    (one,) = (await jobs.list_jobs(store, sort=Sort(Order.DEVICE_TIME, True))).items
    assert (one.state, one.device_s) == ("placing", pytest.approx(counted * day, abs=600))


@POSTGRESQL_IN_FULL
async def test_past_attempts_are_pages(store: Store, settings: Settings, placed: tuple[Job, Lease]) -> None:
    job, _ = placed
    now = time.time()
    async with store.write() as tx:
        for number in range(2, 9):
            same = {"job_id": job.id, "gang": "g", "device": "cpu", "nodes": [], "devices": None}
            await attempts.insert(
                tx, {**same, "number": number, "started_at": now - 100, "ended_at": now - number // 3}
            )
    read: list[PastAttempt] = []
    after = None
    while True:
        page = await cluster.past_attempts(store, settings, DAY, after=after, limit=2)
        read += page.items
        after = page.next
        if after is None:
            break
    assert [one.attempt for one in read] == [2, 5, 4, 3, 8, 7, 6]
    assert all(one.devices == 1 and one.name == job.name for one in read)
    with pytest.raises(InvalidCursor):
        await cluster.past_attempts(store, settings, DAY, after=f"1.0/{job.id}/x")


async def _plans(store: Store, like: str, statements: Sequence[tuple[str, Select[Any]]]) -> dict[str, str]:
    """Index that each statement is to search → its plan, among 10,000 jobs, of which half wait, that ran on 1,000 nodes."""
    async with store.write() as tx:
        row = await job_rows.by_id(tx, like)
        assert row is not None
        same = {**row, "idempotency_key": None, "lease_token": None}
        ids = [new_job_id(1.0 + number) for number in range(MANY)]
        await tx.execute(
            job_table.insert(),
            [{**same, "id": id_, "state": ("queued", "failed")[at % 2]} for at, id_ in enumerate(ids)],
        )
        attempt = {"number": 9, "gang": "g", "device": "cpu", "nodes": [], "devices": 1, "started_at": 0.0}
        await tx.execute(
            attempt_table.insert(), [{**attempt, "job_id": id_, "ended_at": float(at)} for at, id_ in enumerate(ids)]
        )
        gone = {"number": 9, "actor": "ada", "device": "cpu", "devices": 1, "started_at": 0.0}
        rows = [{**gone, "job": id_, "ended_at": float(at)} for at, id_ in enumerate(ids)]
        await tx.execute(removed_attempts.insert(), rows)
        there = {"attempt": 9, "cpu": 1.0, "gpu": 0.0, "since": 0.0}
        rows = [{**there, "job_id": id_, "node": f"n{at % 1000}", "until": at} for at, id_ in enumerate(ids)]
        await tx.execute(gang_nodes.insert(), rows)
        if tx.dialect.name == "postgresql":
            await tx.execute(text("ANALYZE"))
        return {index: await query_plan(tx, statement) for index, statement in statements}


async def test_of_10_000_jobs_and_1_000_nodes_a_page_is_searched(store: Store, placed: tuple[Job, Lease]) -> None:
    job, _ = placed
    last = (float(MANY), job.id, 9)
    plans = await _plans(
        store,
        job.id,
        [
            ("ix_jobs_state_id_retry_at_shape", queue_rows.waiting(new_job_id(1.0 + MANY / 2), 101)),
            ("ix_jobs_state", queue_rows.running("", 101)),
            ("ix_jobs_state_", job_rows.counting(HOLDING)),
            ("ix_attempts_ended_at", attempts.ended(100.0, last, 101)),
            ("ix_gang_nodes_node_until", node_history.on_node("n7", 100.0, last, 101)),
            ("ix_attempts_ended_at_job_id_number", attempts.device_time(MANY - 100.0, 2.0 * MANY, GONE)),
            ("ix_removed_attempts_ended_at", attempts.device_time(MANY - 100.0, 2.0 * MANY, GONE)),
        ],
    )
    for index, plan in plans.items():
        print(index, plan, sep="\n")
        # PostgreSQL reads a queue that is half of all jobs by their ids.
        assert index in plan or (index == "ix_jobs_state_id_retry_at_shape" and "Index Scan using pk_jobs" in plan), (
            index
        )
        words = ("seq scan on", "scan jobs", "scan attempts\n", "scan gang_nodes", "scan removed_attempts")
        assert not any(word in plan.lower() for word in words), index
    for paged in ("ix_jobs_state_id_retry_at_shape", "ix_attempts_ended_at"):
        assert not any(word in plans[paged].lower() for word in ("sort  (", "temp b-tree")), paged


async def test_an_hour_of_1_000_nodes_is_read_by_node(store: Store) -> None:
    async with store.write() as tx:
        uses = {f"n{number}": {"cpu": float(number)} for number in range(1000)}
        await cluster_samples.add(tx, "default", 3600.0, uses)
        if tx.dialect.name == "postgresql":
            await tx.execute(text("ANALYZE"))
        one = samples.select().where(samples.c.cluster.in_(["default"]), samples.c.node == "n5", samples.c.width == 60)
        plan = await query_plan(tx, one.where(samples.c.bucket >= 0))
        assert len(await cluster_samples.read(tx, {"default"}, "n5", 60, 3600.0)) == 1
    assert "pk_cluster_samples" in plan or "sqlite_autoindex_cluster_samples" in plan, plan
