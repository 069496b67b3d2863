"""What every kind of order promises, for all three kinds and over both databases."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import Table
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from shardyard.service import ids
from shardyard.service.errors import IdempotencyConflict, InvalidCursor, InvalidFault, JobNotFound
from shardyard.service.jobs.transitions import Cause
from shardyard.service.orders import order_frame
from shardyard.service.orders.order_frame import OrderKind
from shardyard.service.queries.orders import find
from shardyard.service.schemas.job import Job
from shardyard.service.store import events, orders
from shardyard.service.store import jobs as job_rows
from shardyard.service.store.engine import Store
from shardyard.service.store.tables import faults, operations, traces
from shardyard.workers.messages.event import FaultEvent

from ..conftest import Submit


@dataclass(frozen=True)
class Steps:
    steps: int


@dataclass(frozen=True)
class FaultOrder:
    kind: str
    rank: int | None = None


@dataclass(frozen=True)
class Check:
    position: int


async def of_a_fault(_tx: AsyncConnection, job: RowMapping, request: FaultOrder) -> dict[str, Any]:
    if request.kind == "refused":
        raise InvalidFault("It is refused.")
    return {"attempt": job["attempt"]}


async def of_a_trace(_tx: AsyncConnection, job: RowMapping, _request: Steps) -> dict[str, Any]:
    return {"attempt": job["attempt"], "state": "open"}


async def of_an_operation(_tx: AsyncConnection, _job: RowMapping, request: Check) -> dict[str, Any]:
    return {"kind": "verify", "step": request.position, "path": "/x", "state": "running"}


FAULT = OrderKind("fault", faults, of_a_fault, keep_settled=2)
TRACE = OrderKind("trace", traces, of_a_trace, keep_settled=2)
OPERATION = OrderKind("operation", operations, of_an_operation, keep_settled=2)

#: A kind, a request, and another one.
Asked = tuple[OrderKind[Any], Any, Any]
every_kind = pytest.mark.parametrize(
    "asked",
    [
        pytest.param((FAULT, FaultOrder("kill-rank", 1), FaultOrder("kill-rank")), id="fault"),
        pytest.param((TRACE, Steps(3), Steps(4)), id="trace"),
        pytest.param((OPERATION, Check(1), Check(2)), id="operation"),
    ],
)


def missed(row: RowMapping) -> FaultEvent:
    return FaultEvent(id=row["id"], fault="kill-rank", done=False, message=row["actor"])


async def create(store: Store, kind: OrderKind[Any], job: str, request: Any, key: str | None = None) -> RowMapping:
    async with store.write() as tx:
        return (await order_frame.create(tx, kind, job, request, key, "me"))[1]


async def open_ids(store: Store, table: Table, job: Job) -> list[str]:
    async with store.read() as tx:
        return [row["id"] for row in await orders.open_of(tx, table, job.id)]


async def settle(store: Store, table: Table, job: Job, order: str) -> RowMapping | None:
    async with store.write() as tx:
        await job_rows.lock(tx, job.id)
        return await orders.settle(tx, table, job.id, order, {"settled_at": 5.0, "actor": "reported"})


@every_kind
async def test_one_key_is_one_order(store: Store, submit: Submit, asked: Asked) -> None:
    kind, request, another = asked
    job = await submit()
    rows = await asyncio.gather(*(create(store, kind, job.name, request, "key") for _ in range(8)))
    assert await open_ids(store, kind.table, job) == [rows[0]["id"]] and {row["id"] for row in rows} == {rows[0]["id"]}
    assert ids.parse(kind.noun, rows[0]["id"]) and (rows[0]["actor"], rows[0]["settled_at"]) == ("me", None)
    with pytest.raises(IdempotencyConflict) as conflict:
        await create(store, kind, job.id, another, "key")
    assert conflict.value.field == "Idempotency-Key" and rows[0]["id"] in conflict.value.message
    assert (await create(store, kind, job.id, another, "other key"))["id"] != rows[0]["id"]
    assert (await create(store, kind, (await submit(name="other")).id, another, "key"))["id"] != rows[0]["id"]
    await settle(store, kind.table, job, rows[0]["id"])
    assert (await create(store, kind, job.id, request, "key"))["settled_at"] == 5.0
    unnamed = {(await create(store, kind, job.id, request))["id"] for _ in range(2)}
    assert len(unnamed) == 2 and rows[0]["id"] not in unnamed


async def test_what_is_refused_leaves_nothing(store: Store, submit: Submit) -> None:
    job = await submit()
    for name, kind in (("no-such-job", JobNotFound), (job.id, InvalidFault)):
        with pytest.raises(kind):
            await create(store, FAULT, name, FaultOrder("refused"), "key")
    assert await open_ids(store, faults, job) == []
    assert (await create(store, FAULT, job.id, FaultOrder("kill-rank"), "key"))["kind"] == "kill-rank"


async def test_an_open_order_that_does_the_same_is_returned(store: Store, submit: Submit) -> None:
    job = await submit()

    async def same(tx: AsyncConnection, found: RowMapping, request: Check) -> dict[str, Any] | RowMapping:
        rows = await orders.open_of(tx, operations, found["id"])
        return next(iter(rows), None) or await of_an_operation(tx, found, request)

    kind = OrderKind("operation", operations, same)
    rows = await asyncio.gather(*(create(store, kind, job.id, Check(1)) for _ in range(4)))
    assert await open_ids(store, operations, job) == [rows[0]["id"]]
    assert (await create(store, kind, job.id, Check(2), "key"))["id"] == rows[0]["id"], "and has no key then"
    async with store.read() as tx:
        assert await orders.by_key(tx, operations, job.id, "key") is None


@every_kind
async def test_an_order_is_settled_once(store: Store, submit: Submit, asked: Asked) -> None:
    kind, request, _ = asked
    job, other = await submit(), await submit(name="other")
    first, second = [(await create(store, kind, job.id, request))["id"] for _ in range(2)]
    unharmed = (await create(store, kind, other.id, request))["id"]
    assert await settle(store, kind.table, other, first) is None, "it is another job's"
    ends = await asyncio.gather(*(settle(store, kind.table, job, first) for _ in range(4)))
    assert [(end["id"], end["actor"]) for end in ends if end is not None] == [(first, "reported")]
    for _ in range(2):
        async with store.write() as tx:
            row = await job_rows.lock(tx, job.id)
            assert row is not None
            await order_frame.settle_all(tx, kind.table, row, Cause("test", 7.0), {"actor": "missed"}, missed)
    assert await settle(store, kind.table, job, second) is None
    async with store.read() as tx:
        [event] = await events.of_kind(tx, job.id, "fault", 10)
        settled = {row["id"]: row["settled_at"] for row in await orders.before(tx, kind.table, job.id, None, 10)}
    assert (event["data"]["id"], event["data"]["done"], event["data"]["message"]) == (second, False, "missed")
    assert (event["ts"], event["actor"], event["attempt"]) == (7.0, "test", 0)
    assert settled == {first: 5.0, second: 7.0} and await open_ids(store, kind.table, other) == [unharmed]


@every_kind
async def test_pages_have_each_order_once_newest_first(store: Store, submit: Submit, asked: Asked) -> None:
    kind, request, _ = asked
    job = await submit()
    made = sorted([(await create(store, kind, job.id, request))["id"] for _ in range(5)], reverse=True)
    seen: list[str] = []
    before: str | None = None
    sizes = []
    while not sizes or before is not None:
        async with store.read() as tx:
            found, rows, before = await order_frame.page(tx, kind, job.name, before, 2)
        seen, sizes = [*seen, *(row["id"] for row in rows)], [*sizes, len(rows)]
        assert found["id"] == job.id
    assert (seen, sizes) == (made, [2, 2, 1])
    async with store.read() as tx:
        assert (await order_frame.page(tx, kind, job.id, None, 5))[2] is None, "a full last page is the last"
        for text in ("", "nonsense", "\0", made[0] + "\n", made[0][:-1], ids.new_id("job", 1.0)):
            with pytest.raises(InvalidCursor) as refused:
                await order_frame.page(tx, kind, "no-such-job", text, 2)
            assert refused.value.field == "before"
            assert (await find(tx, kind.noun, kind.table, job.id, text))[1] is None
        assert ((await find(tx, kind.noun, kind.table, job.name, made[3]))[1] or {})["id"] == made[3]
        with pytest.raises(JobNotFound):
            await find(tx, kind.noun, kind.table, "no-such-job", made[0])


@every_kind
async def test_a_new_order_forgets_old_settled_ones_and_no_open_ones(
    store: Store, submit: Submit, asked: Asked
) -> None:
    kind, request, _ = asked
    job = await submit()
    forever = (await create(store, kind, job.id, request))["id"]
    made = []
    for _ in range(4):
        made.append((await create(store, kind, job.id, request))["id"])
        await settle(store, kind.table, job, made[-1])
    newest = (await create(store, kind, job.id, request))["id"]
    async with store.read() as tx:
        kept = {row["id"] for row in await orders.before(tx, kind.table, job.id, None, 10)}
    assert kept == {forever, newest, *sorted(made)[-2:]}
