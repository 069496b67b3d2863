"""Admission starts jobs in order, reads a bounded part of the queue, and gives no device to two jobs."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from harness.query_plans import query_plan
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shardyard.service import capacity
from shardyard.service.dispatch import admission
from shardyard.service.dispatch.admission import FRONT, Walk, admit
from shardyard.service.ids import new_job_id
from shardyard.service.jobs import submit as submitting
from shardyard.service.jobs.pause import pause
from shardyard.service.jobs.reshard import reshard
from shardyard.service.policies.queue import turn
from shardyard.service.queries import jobs, live_tail
from shardyard.service.schemas.cursor import Cursor
from shardyard.service.schemas.job import Job
from shardyard.service.settings import Settings
from shardyard.service.spec import JobSpec
from shardyard.service.states import State
from shardyard.service.store import clusters, nodes
from shardyard.service.store import jobs as job_rows
from shardyard.service.store.engine import Store
from shardyard.service.store.tables import jobs as table

from ..conftest import Submit
from ..gang_events import NODE as CPU_NODE

MANY = 10_000


NODE = {"id": "n1", "host": "h1", "alive": True, "cpu": 2.0, "gpu": 4.0, "cpu_used": 0.0, "gpu_used": 0.0}


async def _queue(tx: AsyncConnection, like: str, many: int = MANY, retry_at: float = 9e9) -> list[str]:
    """So many more jobs like one, which were submitted before it."""
    row = await job_rows.by_id(tx, like)
    assert row is not None
    rows = [{**row, "id": new_job_id(1.0 + i), "idempotency_key": None, "retry_at": retry_at} for i in range(many)]
    await tx.execute(table.insert(), rows)
    await _statistics(tx)
    return [row["id"] for row in rows]


async def _statistics(tx: AsyncConnection) -> None:
    """What autovacuum does for PostgreSQL sooner or later. The service never runs ANALYZE, so SQLite plans without statistics."""
    if tx.dialect.name == "postgresql":
        await tx.execute(text("ANALYZE"))


async def _has(store: Store, **numbers: float) -> None:
    async with store.write() as tx:
        await nodes.replace(tx, [{**NODE, "memory_bytes": 1, "seen_at": 0.0, **numbers}])


async def test_a_long_queue_is_read_by_its_index(store: Store, submit: Submit) -> None:
    """Ten thousand jobs wait for their next try before one that is ready."""
    ready = await submit()
    async with store.write() as tx:
        await _queue(tx, ready.id)
    async with store.read() as tx:
        plan = await query_plan(tx, job_rows.front(tx, 200))
        assert [row["id"] for row in await job_rows.queued(tx, 200)] == [ready.id]
    print(plan)
    assert "ix_jobs_state_id_retry_at_shape" in plan
    assert not any(word in plan.lower() for word in ("seq scan", "scan jobs", "sort", "temp b-tree"))
    assert (await jobs.get_job(store, ready.id)).retry_at is None


@pytest.mark.full
async def test_elastic_jobs_are_found_among_all_that_run(store: Store, submit: Submit) -> None:
    """Ten thousand jobs run, of which one may grow."""
    one = await submit(ranks=2, layout={"data": {"min": 1, "max": 2}})
    other = await submit()
    async with store.write() as tx:
        await _queue(tx, other.id)
        await tx.execute(table.update().values(state="running"))
        await tx.execute(table.update().where(table.c.id == one.id).values(elastic_at=1.0))
        await _statistics(tx)
    async with store.read() as tx:
        plan = await query_plan(tx, job_rows.growable(tx))
        assert [row["id"] for row in await job_rows.may_grow(tx)] == [one.id]
    print(plan)
    assert "ix_jobs_elastic" in plan


async def test_jobs_that_wait_for_other_devices_hold_up_no_other(
    store: Store, settings: Settings, submit: Submit
) -> None:
    """Before a job for CPUs: more than a front of jobs for GPUs that are in use, of jobs for either, and of jobs that are too large."""
    await _has(store, gpu_used=4.0)
    gpu = await submit(ranks=4, device="cuda")
    either = await submit(ranks=4)
    over = await submit(ranks=4, device="cuda", name="over")
    async with store.write() as tx:
        for like in (gpu, either):
            await _queue(tx, like.id, FRONT + 20, retry_at=0.0)
        await tx.execute(table.update().where(table.c.id == over.id).values(shape="cuda 64 1 0", world_size=64))
        many = await _queue(tx, over.id, FRONT + 20, retry_at=0.0)
        await tx.execute(table.update().where(table.c.id.in_(many)).values(tensor=1))
    cpu = await submit(ranks=4, device="cpu")
    assert [lease.job_id for lease in (await admit(store, settings, "a", None)).leases] == [cpu.id]
    await _has(store, gpu_used=0.0)
    (lease,) = (await admit(store, settings, "a", None)).leases
    async with store.read() as tx:
        row = await job_rows.by_id(tx, lease.job_id)
    assert row is not None and row["device"] == "cuda"


async def test_jobs_that_wait_for_one_model_leave_the_others_to_the_jobs_behind_them(
    store: Store, settings: Settings, submit: Submit
) -> None:
    """However many they are."""
    h100 = {**NODE, "id": "n1", "gpu_model": "H100", "gpu_used": 4.0}
    a100 = {**NODE, "id": "n2", "host": "h2", "gpu_model": "A100"}
    async with store.write() as tx:
        await nodes.replace(tx, [{**node, "memory_bytes": 1, "seen_at": 0.0} for node in (h100, a100)])
    first = await submit(ranks=4, resources={"gpu": "H100"})
    async with store.write() as tx:
        await _queue(tx, first.id, 2 * FRONT, retry_at=0.0)
    other = await submit(ranks=4, resources={"gpu": "A100"})
    assert [lease.job_id for lease in (await admit(store, settings, "a", None)).leases] == [other.id]


async def test_jobs_too_large_for_one_model_leave_it_to_the_jobs_behind_them(
    store: Store, settings: Settings, submit: Submit
) -> None:
    """However many they are, and though they name no model."""
    h100 = {**NODE, "id": "n1", "gpu_model": "H100", "gpu": 8.0, "gpu_used": 8.0}
    a100 = {**NODE, "id": "n2", "host": "h2", "gpu_model": "A100", "gpu": 4.0}
    async with store.write() as tx:
        await nodes.replace(tx, [{**node, "memory_bytes": 1, "seen_at": 0.0} for node in (h100, a100)])
    first = await submit(ranks=8, device="cuda")
    async with store.write() as tx:
        await _queue(tx, first.id, 2 * FRONT, retry_at=0.0)
    other = await submit(ranks=4, device="cuda")
    assert [lease.job_id for lease in (await admit(store, settings, "a", None)).leases] == [other.id]


async def test_every_job_that_waits_gets_a_reason(store: Store, settings: Settings, submit: Submit) -> None:
    """However long the queue is; and again, when the reason has changed."""
    await _has(store, gpu_used=4.0)
    gpu = await submit(ranks=4, device="cuda")
    over = await submit(ranks=4, device="cuda", name="over")
    async with store.write() as tx:
        turns = await _queue(tx, gpu.id, 2 * FRONT + 50, retry_at=0.0)
        await tx.execute(table.update().where(table.c.id == over.id).values(shape="cuda 64 1 0", world_size=64))
        nevers = await _queue(tx, over.id, FRONT + 50, retry_at=0.0)
    walk, looks = Walk(), 1
    while (await admit(store, settings, "a", None, walk)).unexplained:
        looks += 1
    assert looks <= 10
    rows = {job.id: (job.reason, bool(job.message)) for job in await _all(store)}
    assert {rows[each] for each in nevers} == {("too_many_ranks", True)}
    assert rows[turns[0]] == ("waiting_for_devices", True)
    assert {rows[each] for each in turns[1:]} == {("waiting_for_turn", True)}
    tail = await live_tail.tail(store, turns[-1], Cursor(), limit=100)
    assert [item.data["reason"] for item in tail.items] == ["waiting_for_turn"]
    await _has(store, gpu=2.0)  # now those are too many as well
    for _ in range(looks):
        assert not (await admit(store, settings, "a", None, walk)).leases
    reasons = {job.id: job.reason for job in await _all(store)}
    assert set(reasons.values()) == {"too_many_ranks"}


async def _all(store: Store) -> list[Job]:
    found, cursor = [], None
    while True:
        page = await jobs.list_jobs(store, job_rows.Filter(state=State.QUEUED), cursor=cursor, limit=200)
        found += page.items
        if (cursor := page.next) is None:
            return found


async def test_a_look_at_ten_thousand_waiting_jobs_reads_the_fronts_alone(
    store: Store, settings: Settings, submit: Submit
) -> None:
    """The kinds that wait are found in the index, and of each a front; a settled queue is not written to."""
    await _has(store, gpu_used=4.0, cpu_used=2.0)
    gpu = await submit(ranks=4, device="cuda")
    async with store.write() as tx:
        await _queue(tx, gpu.id, retry_at=0.0)
        await tx.execute(table.update().values(reason="waiting_for_turn", message=turn("").message))
    cpu = await submit(ranks=4, device="cpu")
    async with store.read() as tx:
        plan = await query_plan(tx, job_rows.distinct_shapes())
        front = await query_plan(tx, job_rows.front(tx, FRONT, ["cpu 4 1 0"]))
    print(plan, front, sep="\n")
    for each, index in ((plan, "ix_jobs_state_shape"), (front, "ix_jobs_state_")):
        assert index in each
        assert not any(word in each.lower() for word in ("seq scan", "scan jobs"))
    first, second = [(await admit(store, settings, "a", None)).leases for _ in range(2)]
    assert not first and not second
    assert (await jobs.get_job(store, cpu.id)).reason == "waiting_for_devices"
    async with store.read() as tx:
        reported = (await tx.execute(text("SELECT count(*) FROM events WHERE kind = 'state'"))).scalar_one()
    assert reported == 4, "two submissions, and the first job of each queue"


async def test_two_dispatchers_never_give_the_same_devices_away(
    store: Store, database_url: str, settings: Settings, submit: Submit
) -> None:
    """A node of 8 CPU ranks, five jobs of two ranks, two dispatchers that decide at once: four jobs start."""
    async with store.write() as tx:
        await nodes.replace(tx, [{**CPU_NODE, "memory_bytes": 1, "seen_at": 0.0}])
    made = [await submit(ranks=2, name=f"job-{i}") for i in range(5)]
    other = Store(database_url)
    try:
        both = await asyncio.gather(admit(store, settings, "a", None), admit(other, settings, "b", None))
    finally:
        await other.close()
    assert sorted(lease.job_id for each in both for lease in each.leases) == [job.id for job in made[:4]]
    last = await jobs.get_job(store, made[4].id)
    assert (last.state, last.reason) == (State.QUEUED, "waiting_for_devices")
    assert last.message == "Needs 2 ranks, 0 of 8 CPU ranks are free; waiting for 2 more."


async def test_spares_hold_devices_too(store: Store, settings: Settings, submit: Submit) -> None:
    """A node of 8 CPU ranks: two jobs of 2 ranks and a spare start, and leave 2 slots, whether they are seen at once or later."""
    async with store.write() as tx:
        await nodes.replace(tx, [{**CPU_NODE, "memory_bytes": 1, "seen_at": 0.0}])
    made = [await submit(ranks=2, spares=1, name=f"job-{i}") for i in range(3)]
    for started in (made[:2], []):
        leases = (await admit(store, settings, "a", None)).leases
        assert [lease.job_id for lease in leases] == [job.id for job in started]
        last = await jobs.get_job(store, made[2].id)
        assert last.message == "Needs 2 ranks and 1 spare, 2 of 8 CPU ranks are free; waiting for 1 more."


async def test_a_gang_on_gpus_holds_its_cores_before_they_are_seen(
    store: Store, settings: Settings, submit: Submit
) -> None:
    """A node of 4 GPUs and 2 cores, on each of which run four CPU ranks."""
    await _has(store)
    cores = {"cpus_per_gpu": 0.375}
    first, second = [await submit(ranks=2, device="cuda", resources=cores, name=name) for name in ("a", "b")]
    assert [lease.job_id for lease in (await admit(store, settings, "a", None)).leases] == [first.id, second.id]
    cpu = await submit(ranks=3, device="cpu")
    assert not (await admit(store, settings, "a", None)).leases
    now = await jobs.get_job(store, cpu.id)
    assert now.message == "Needs 3 ranks, 2 of 8 CPU ranks are free; waiting for 1 more."


async def test_a_gang_holds_its_devices_until_it_has_ended_whatever_layout_comes_next(
    store: Store, settings: Settings, spec: Callable[..., JobSpec], submit: Submit
) -> None:
    async with store.write() as tx:
        await nodes.replace(tx, [{**CPU_NODE, "memory_bytes": 1, "seen_at": 0.0}])
    large, small = await submit(ranks=8), await submit(ranks=4)
    assert [lease.job_id for lease in (await admit(store, settings, "a", None)).leases] == [large.id]
    await reshard(store, settings, large.id, spec(ranks=2), "tester")
    assert not (await admit(store, settings, "a", None)).leases
    now = await jobs.get_job(store, small.id)
    assert now.message == "Needs 4 ranks, 0 of 8 CPU ranks are free; waiting for 4 more."


async def test_waiting_is_reported_once_and_not_at_every_look(store: Store, settings: Settings, submit: Submit) -> None:
    job = await submit(ranks=2)
    for _ in range(3):
        await admit(store, settings, "a", "The head is away.")
    now = await jobs.get_job(store, job.id)
    assert (now.reason, now.message, Cursor.parse(now.cursor).event) == ("cluster_unreachable", "The head is away.", 2)


async def test_numbers_of_an_explanation_that_change_are_no_events(
    store: Store, settings: Settings, submit: Submit
) -> None:
    """On a Ray that others use, too, the free devices change each second, for days; a job's states are kept as long as the job."""
    job = await submit(ranks=4, device="cpu")

    async def explained(unreachable: str | None = None, **used: float) -> tuple[str | None, str | None, int]:
        await _has(store, gpu=0.0, **used)
        await admit(store, settings, "a", unreachable)
        now = await jobs.get_job(store, job.id)
        return now.reason, now.message, Cursor.parse(now.cursor).event

    free = "Needs 4 ranks, {} of 8 CPU ranks are free; waiting for {} more.".format
    assert await explained(cpu_used=1.5) == ("waiting_for_devices", free(2, 2), 2)
    assert await explained(cpu_used=1.75) == ("waiting_for_devices", free(1, 3), 2)
    assert await explained(cpu_used=2.0) == ("waiting_for_devices", free(0, 4), 2)
    assert await explained("The head is away.") == ("cluster_unreachable", "The head is away.", 3)
    assert await explained("No route to the head.") == ("cluster_unreachable", "No route to the head.", 4)
    assert await explained(cpu_used=2.0) == ("waiting_for_devices", free(0, 4), 5)
    tail = await live_tail.tail(store, job.id, Cursor())
    reasons = ["waiting_for_devices", "cluster_unreachable", "cluster_unreachable", "waiting_for_devices"]
    assert [item.data["reason"] for item in tail.items][1:] == reasons


async def test_a_dispatcher_that_does_not_reach_the_cluster_leaves_the_explanations_to_one_that_does(
    store: Store, settings: Settings, submit: Submit
) -> None:
    """Or the two would replace each other's twice a second, and each time store an event."""
    await _has(store, cpu_used=2.0, gpu=0.0)
    job = await submit(ranks=2)

    async def explained(owner: str, unreachable: str | None) -> tuple[str | None, int]:
        assert (await admit(store, settings, owner, unreachable)).waiting
        now = await jobs.get_job(store, job.id)
        return now.reason, Cursor.parse(now.cursor).event

    async with store.write() as tx:
        await clusters.put(tx, settings.cluster, "reaches", 60.0)
    assert await explained("reaches", None) == ("waiting_for_devices", 2)
    assert await explained("does not", "The head is away.") == ("waiting_for_devices", 2)
    assert await explained("reaches", "The head is away.") == ("cluster_unreachable", 3), "it did until now"
    async with store.write() as tx:
        await clusters.leave(tx, "reaches")
    assert await explained("does not", "No route to the head.") == ("cluster_unreachable", 4)


#: SQLite lets no user write while a pass runs.
POSTGRESQL = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)


def _meanwhile(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, happens: Callable[[], Awaitable[Any]]) -> None:
    """Have something happen, once, just before a pass calls this function."""
    calls = getattr(module, name)

    async def first(*given: Any) -> Any:
        monkeypatch.setattr(module, name, calls)
        await happens()
        return await calls(*given)

    monkeypatch.setattr(module, name, first)


async def _states(store: Store, job: Job) -> list[str]:
    tail = await live_tail.tail(store, job.id, Cursor(), limit=100)
    return [item.data["state"] for item in tail.items if item.kind == "state"]


@POSTGRESQL
async def test_a_job_that_is_cancelled_or_paused_meanwhile_is_not_explained(
    store: Store, settings: Settings, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _has(store, gpu=0.0, cpu_used=2.0)
    over, rests, waits = [await submit(ranks=4, device="cpu", name=name) for name in ("over", "rests", "waits")]

    async def leave() -> None:
        await submitting.cancel(store, over.id, "tester")
        await pause(store, rests.id, "tester")

    _meanwhile(monkeypatch, admission, "fleet", leave)
    await admit(store, settings, "a", None)
    assert await _states(store, over) == ["queued", "cancelled"]
    assert await _states(store, rests) == ["queued", "paused"]
    assert await _states(store, waits) == ["queued", "queued"]
    assert (await jobs.get_job(store, over.id)).reason == "cancelled_by_user"


@POSTGRESQL
@pytest.mark.parametrize(
    ("ranks", "module", "before"),
    [(2, admission, "fleet"), (4, capacity, "inventory")],  # the only one of its shape, before shapes are read
    ids=["of a shape", "the only one of its shape"],
)
async def test_a_job_that_is_cancelled_meanwhile_is_not_started_and_stops_no_other(
    ranks: int, module: Any, before: str, store: Store, settings: Settings, submit: Submit, monkeypatch: Any
) -> None:
    await _has(store, gpu=0.0)
    over, other = await submit(ranks=ranks), await submit(ranks=2)
    _meanwhile(monkeypatch, module, before, lambda: submitting.cancel(store, over.id, "tester"))
    assert [lease.job_id for lease in (await admit(store, settings, "a", None)).leases] == [other.id]
    assert await _states(store, over) == ["queued", "cancelled"]


@POSTGRESQL
async def test_a_job_that_is_resharded_meanwhile_starts_in_a_later_pass(
    store: Store,
    settings: Settings,
    spec: Callable[..., JobSpec],
    submit: Submit,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has 8 ranks now: they were not counted, and have room only where no other job was started."""
    await _has(store, gpu=0.0)
    job, other = await submit(ranks=2), await submit(ranks=2)
    _meanwhile(monkeypatch, admission, "fleet", lambda: reshard(store, settings, job.id, spec(ranks=8), "tester"))
    assert [lease.job_id for lease in (await admit(store, settings, "a", None)).leases] == [other.id]
    assert not (await admit(store, settings, "a", None)).leases
    now = await jobs.get_job(store, job.id)
    assert (now.reason, now.message) == (
        "waiting_for_devices",
        "Needs 8 ranks, 6 of 8 CPU ranks are free; waiting for 2 more.",
    )
