"""Lists of jobs in the order of a number, over both databases: paged without gaps while jobs run, and read from indexes."""

import itertools
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from harness.databases import POSTGRESQL_IN_FULL
from harness.events import logged
from harness.query_plans import query_plan
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shardyard.service.dispatch.event_ingest import ingest
from shardyard.service.errors import InvalidCursor
from shardyard.service.ids import new_job_id
from shardyard.service.queries import jobs
from shardyard.service.schemas.job import Job
from shardyard.service.schemas.job_order import Order, Sort
from shardyard.service.states import State
from shardyard.service.store import attempts, numbered_jobs
from shardyard.service.store import jobs as job_rows
from shardyard.service.store.engine import Store
from shardyard.service.store.jobs import Filter
from shardyard.service.store.leases import Lease
from shardyard.service.store.numbered_jobs import Numbering, Place
from shardyard.service.store.program_tables import metric_series
from shardyard.service.store.tables import attempts as attempt_table
from shardyard.service.store.tables import jobs as job_table

from ..conftest import Submit
from ..gang_events import event_batch, state

MANY = 10_000
#: When the first page of a list is read.
AT = 1000.0
ATTEMPT = {"gang": "g", "device": "cpu", "nodes": []}

#: Job → when it started and ended; and its attempts: number of devices, and when each started and ended.
Times = tuple[float | None, float | None]
Runs = list[tuple[int, float, float | None]]


async def _copies(tx: AsyncConnection, like: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Jobs like one, with other values, each submitted after the one before."""
    row = await job_rows.by_id(tx, like)
    assert row is not None
    made = [{**row, "idempotency_key": None, **values, "id": new_job_id(1.0 + at)} for at, values in enumerate(rows)]
    await tx.execute(job_table.insert(), made)
    return [str(one["id"]) for one in made]


async def _drawn(tx: AsyncConnection, like: str, draw: random.Random) -> tuple[dict[str, Times], dict[str, Runs]]:
    """Jobs that never started, that run, and that have ended, before and after `AT`, with equal numbers among them."""
    rows = []
    for _ in range(40):
        started = draw.choice([*[None] * 6, *range(900, 1010, 10)])
        finished = None if draw.random() < 0.4 else draw.choice(range(started or 900, 1020, 10))
        rows.append({"started_at": started, "finished_at": finished})
    ids = await _copies(tx, like, rows)
    times: dict[str, Times] = {id_: (row["started_at"], row["finished_at"]) for id_, row in zip(ids, rows, strict=True)}
    runs: dict[str, Runs] = {id_: [] for id_ in ids}
    for id_, (first, last) in times.items():
        if first is not None and last is not None:
            await job_rows.set_columns(tx, id_, {"duration_s": last - first})
        for number in range(draw.choice([0, 1, 1, 2])):
            begun = float(draw.choice(range(900, 1020, 10)))
            devices, ended = draw.choice([1, 2, 4]), draw.choice([None, begun + 10, begun + 20])
            runs[id_].append((devices, begun, ended))
            row = {**ATTEMPT, "job_id": id_, "number": number, "devices": devices, "started_at": begun}
            await attempts.insert(tx, row)
            if ended is not None:
                await attempts.end(tx, id_, number, "completed", ended)
    return times, runs


def _naive(order: Order, times: Times, runs: Runs) -> float | None:
    """A job's number as of `AT`."""
    if order == Order.DURATION:
        started, finished = times
        return None if started is None or started >= AT else min(AT if finished is None else finished, AT) - started
    spent = [
        devices * (min(AT if ended is None else ended, AT) - begun) for devices, begun, ended in runs if begun < AT
    ]
    return sum(spent) if spent else None


async def _live_on(tx: AsyncConnection, times: dict[str, Times], runs: dict[str, Runs], draw: random.Random) -> None:
    """After `AT` a job ends, one starts, and an attempt ends."""
    for id_ in draw.sample(sorted(times), 5):
        started, finished = times[id_]
        if started is None and finished is None:
            await job_rows.set_columns(tx, id_, {"started_at": AT + 1})
            times[id_] = (AT + 1, None)
        elif finished is None:
            assert started is not None
            await job_rows.set_columns(tx, id_, {"finished_at": AT + 30, "duration_s": AT + 30 - started})
            times[id_] = (started, AT + 30)
        open_ = next((number for number, run in enumerate(runs[id_]) if run[2] is None), None)
        if open_ is not None:
            await attempts.end(tx, id_, open_, "completed", AT + 40)
            runs[id_][open_] = (*runs[id_][open_][:2], AT + 40)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("order", [Order.DURATION, Order.DEVICE_TIME])
async def test_pages_are_as_of_one_time_whatever_jobs_do(
    store: Store, submit: Submit, order: Order, descending: bool
) -> None:
    draw = random.Random(7)
    numbering = Numbering(Sort(order, descending), AT)
    first = await submit()
    async with store.write() as tx:
        times, runs = await _drawn(tx, first.id, draw)
    numbers = {id_: _naive(order, times[id_], runs[id_]) for id_ in times}
    having = sorted(((n, id_) for id_, n in numbers.items() if n is not None), reverse=descending)
    none = sorted((id_ for id_, n in numbers.items() if n is None), reverse=True)
    assert len(having) > 9 and len(none) > 9 and len({number for number, _ in having}) < len(having)
    seen: list[Place] = []
    for _ in range(40):
        async with store.read() as tx:
            page = await numbered_jobs.page(tx, Filter(), numbering, seen[-1] if seen else None, 3)
        seen += page
        if len(page) < 3:
            break
        async with store.write() as tx:
            await _live_on(tx, times, runs, draw)
    found = [(one.id, one.number) for one in seen if one.id != first.id]
    assert found == [*((id_, number) for number, id_ in having), *((id_, None) for id_ in none)]


@POSTGRESQL_IN_FULL
async def test_a_job_that_ended_without_a_stored_duration_is_listed_last(store: Store, submit: Submit) -> None:
    """An earlier version that still ran after the migration ended it."""
    first = await submit()
    ended = {"started_at": 900.0, "finished_at": 950.0}
    rows = [{**ended, "duration_s": 50.0}, ended, {"started_at": 900.0}, {"started_at": 900.0, "finished_at": AT + 1}]
    async with store.write() as tx:
        stored, without, runs, ends_later = await _copies(tx, first.id, rows)
    for limit in (1, 10):
        seen: list[Place] = []
        for _ in range(6):
            async with store.read() as tx:
                numbering = Numbering(Sort(Order.DURATION, True), AT)
                seen += await numbered_jobs.page(tx, Filter(), numbering, seen[-1] if seen else None, limit)
        found = [(one.id, one.number) for one in seen]
        assert found == [(ends_later, 100.0), (runs, 100.0), (stored, 50.0), (first.id, None), (without, None)]


@POSTGRESQL_IN_FULL
async def test_a_job_that_ends_keeps_its_duration_and_its_device_time(store: Store, placed: tuple[Job, Lease]) -> None:
    job, lease = placed
    batch = event_batch(state("starting"), state("running"), state("succeeded"))
    await ingest(store, lease, 1, batch[:2])
    (runs,) = (await jobs.list_jobs(store, sort=Sort(Order.DEVICE_TIME))).items
    assert runs.device_s is not None and runs.device_s > 0
    await ingest(store, lease, 1, batch)
    async with store.read() as tx:
        row = await job_rows.by_id(tx, job.id)
        assert row is not None
        spent = await attempts.device_seconds(tx, [job.id], time.time())
    assert row["duration_s"] == pytest.approx(row["finished_at"] - row["started_at"], abs=1e-6)
    assert row["device_s"] == pytest.approx(spent[job.id], abs=1e-6)
    (ended,) = (await jobs.list_jobs(store, sort=Sort(Order.DEVICE_TIME))).items
    assert ended.device_s == (await jobs.get_job(store, job.id)).device_s == pytest.approx(row["device_s"], abs=1e-6)


async def test_jobs_are_sorted_by_the_newest_and_by_the_best_value_of_a_metric(
    store: Store, placed: tuple[Job, Lease], submit: Submit
) -> None:
    """The extremes are those of the curve: values that a later run replaced do not count."""
    job, lease = placed
    values = {"acc": [(1, 0.5), (2, 0.9), (3, 0.7)], "a/b, c=1": [(1, 0.5)]}
    await ingest(store, lease, 1, event_batch(logged(values)))
    silent = await submit()
    async with store.write() as tx:
        others = await _copies(tx, job.id, [{}, {}, {}, {"state": State.CANCELLED}])
        same = {"number": 0, "name": "acc", "width": 1, "run": 1, "last_step": 3}
        rows = [(0.7, 0.1, 0.8), (0.6, 0.6, 0.95), (None, None, None), (0.99, 0.99, 0.99)]
        for id_, (last, lowest, highest) in zip(others, rows, strict=True):
            made = {**same, "job_id": id_, "last": last, "lowest": lowest, "highest": highest}
            await tx.execute(metric_series.insert().values(made))

    async def found(sort: Sort, **filters: Any) -> list[str]:
        ids: list[str] = []
        cursor = None
        while True:
            page = await jobs.list_jobs(store, Filter(**filters), sort=sort, cursor=cursor, limit=2)
            ids += [one.id for one in page.items]
            if page.next is None:
                return ids
            cursor = page.next

    a, b, none, over = others
    rest = sorted([none, silent.id], reverse=True)
    assert await found(Sort(Order.METRIC, False, "acc")) == [b, a, job.id, over, *rest]
    assert await found(Sort(Order.METRIC, True, "acc")) == [over, job.id, a, b, *rest]
    assert await found(Sort(Order.LOWEST, False, "acc")) == [a, job.id, b, over, *rest]
    assert await found(Sort(Order.HIGHEST, True, "acc")) == [over, b, job.id, a, *rest]
    assert await found(Sort(Order.HIGHEST, True, "acc"), state=State.CANCELLED) == [over]
    assert (await found(Sort(Order.METRIC, False, "a/b, c=1")))[0] == job.id
    everyone = sorted([job.id, silent.id, *others], reverse=True)
    assert await found(Sort(Order.METRIC, True, "unknown")) == everyone
    await ingest(store, lease, 1, event_batch(logged(values), logged({"acc": [(2, 0.2)]}, generation=2)))
    assert await found(Sort(Order.HIGHEST, True, "acc")) == [over, b, a, job.id, *rest]


@POSTGRESQL_IN_FULL
async def test_a_cursor_is_of_one_order_and_lasts_a_day(store: Store, submit: Submit) -> None:
    for _ in range(3):
        await submit()
    sort = Sort(Order.METRIC, False, "a")
    cursor = (await jobs.list_jobs(store, sort=sort, limit=1)).next
    assert cursor is not None and len((await jobs.list_jobs(store, sort=sort, cursor=cursor)).items) == 2
    others = [Sort(Order.METRIC, True, "a"), Sort(Order.METRIC, False, "b"), Sort(Order.DURATION), Sort(Order.NAME)]
    for other in others:
        with pytest.raises(InvalidCursor):
            await jobs.list_jobs(store, sort=other, cursor=cursor)
    digest, at, number, id_ = cursor.split("/")
    assert number == "none"
    for wrong in (f"{digest}/nan/none/{id_}", f"{digest}/{at}/1e999/{id_}", f"{digest}/{at}/none/{id_}x", id_, ""):
        with pytest.raises(InvalidCursor):
            await jobs.list_jobs(store, sort=sort, cursor=wrong)
    with pytest.raises(InvalidCursor, match="more than a day ago"):
        await jobs.list_jobs(store, sort=sort, cursor=f"{digest}/{time.time() - 90_000}/none/{id_}")


async def _fill(tx: AsyncConnection, like: str) -> list[str]:
    """Jobs of which most have ended, some run, and some never started, with an attempt and a metric."""
    rows: list[dict[str, float | None]] = [
        {
            "started_at": float(at),
            "finished_at": float(at + at % 97),
            "duration_s": float(at % 97),
            "device_s": float(at % 89),
        }
        for at in range(MANY)
    ]
    never: dict[str, float | None] = dict.fromkeys(("started_at", "finished_at", "duration_s", "device_s"))
    for at in range(0, MANY, 20):
        rows[at] |= never if at % 1000 else {**never, "started_at": float(at)}
    ids = await _copies(tx, like, rows)
    ran = [(at, id_) for at, id_ in enumerate(ids) if rows[at]["started_at"] is not None]
    made = {**ATTEMPT, "number": 1, "devices": 1}
    await tx.execute(
        attempt_table.insert(),
        [{**made, "job_id": id_, "started_at": float(at), "ended_at": rows[at]["finished_at"]} for at, id_ in ran],
    )
    same = {"number": 0, "width": 1, "run": 1, "last_step": 1}
    await tx.execute(
        metric_series.insert(),
        [
            {**same, "job_id": id_, "name": ("acc", "other")[at % 2], "last": at % 91, "lowest": at % 7, "highest": at}
            for at, id_ in ran
        ],
    )
    if tx.dialect.name == "postgresql":
        await tx.execute(text("ANALYZE"))
    return ids


BY_TIME = {Order.DURATION: "ix_jobs_duration_s_id", Order.DEVICE_TIME: "ix_jobs_device_s_id"}
COLUMN = {Order.METRIC: "last", Order.LOWEST: "lowest", Order.HIGHEST: "highest"}
#: Reads of all jobs. PostgreSQL may read all attempts, which are small rows, to find those of some jobs.
WHOLE = ("seq scan on jobs", "scan jobs\n", "scan attempts\n")
INDEX = BY_TIME | {order: f"ix_metric_series_name_{column}_job_id" for order, column in COLUMN.items()}


async def test_of_10_000_jobs_a_page_is_read_in_the_order_of_an_index(store: Store, submit: Submit) -> None:
    job = await submit()
    async with store.write() as tx:
        ids = await _fill(tx, job.id)
        for (order, index), descending in itertools.product(INDEX.items(), (False, True)):
            numbering = Numbering(Sort(order, descending, "acc"), float(MANY))
            for after in (None, Place(ids[MANY // 2], 3.0)):
                statements = numbered_jobs.with_number(Filter(), numbering, after, 51)
                plans = [await query_plan(tx, statement) for statement in statements]
                print(order, *plans, sep="\n")
                assert index in plans[-1]
                assert not any(
                    word in plans[-1].lower() for word in ("sort  (", "seq scan", "temp b-tree for order by")
                )
                assert not any(word in plan.lower() for plan in plans for word in WHOLE)
            for before in (None, ids[MANY // 2]):
                for statement in numbered_jobs.without_number(Filter(), numbering, before, 51):
                    plan = await query_plan(tx, statement)
                    print(order, plan, sep="\n")
                    if order in BY_TIME:
                        assert not any(word in plan.lower() for word in (*WHOLE, "scan jobs"))
