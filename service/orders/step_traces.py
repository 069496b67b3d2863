"""Traces of steps on request: stored as orders, delivered to the gang by its job's dispatcher, settled once, by the event that ends them.

A trace is of the attempt that runs when it is requested. If that attempt ends first, the trace fails. A job has one open trace at a
time, and keeps its newest ones. The spans that ranks report are large: they are stored part by part (`trace_spans.py`), never as an event.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ...workers.messages.event import TraceEvent, TraceFinishedEvent
from ...workers.messages.trace_request import Trace as GangTrace
from .. import ids
from ..errors import TraceNotPossible, TraceOpen
from ..jobs.transitions import Cause
from ..queries.traces import KEPT, trace_record
from ..schemas.trace import Trace, Traces
from ..store import orders
from ..store import traces as rows
from ..store.engine import Store
from ..store.packing import trace_spans
from ..store.tables import traces
from . import order_frame
from .order_frame import Delivery, OrderKind


@dataclass(frozen=True)
class TraceRequest:
    """A trace of the next `steps` steps."""

    steps: int


async def create(store: Store, job: str, steps: int, key: str | None, actor: str) -> Trace:
    """Store the trace; the job's dispatcher sees it within `poll_s`. `job` is an id or a name, `key` an idempotency key.

    Raises JobNotFound, JobNotRunning, TraceNotPossible, TraceOpen, IdempotencyConflict; then nothing is stored.
    """
    async with store.write() as tx:
        found, row = await order_frame.create(tx, _KIND, job, TraceRequest(steps), key, actor)
        return await trace_record(tx, found, row)


async def _prepare(tx: AsyncConnection, job: RowMapping, _request: TraceRequest) -> dict[str, Any]:
    order_frame.refuse_unless_running(job, "only running jobs can be traced")
    if "command" in job["spec"]:
        remedy = f"Record what a rank's process does: shardyard profile {job['id']} --rank 0 --kind operators"
        raise TraceNotPossible(f"{job['id']} runs a program, whose steps are not known.", field="job", remedy=remedy)
    for row in await orders.open_of(tx, traces, job["id"]):
        remedy = "Wait for its end: shardyard trace JOB --list"
        raise TraceOpen(f"{row['id']} is being recorded.", field="job", remedy=remedy)
    return {"attempt": job["attempt"], "state": "open"}


async def deliveries(tx: AsyncConnection, tokens: Collection[str]) -> list[Delivery]:
    """The open traces of the gangs under these leases, oldest first."""
    return await order_frame.deliveries(tx, traces, tokens, _message)


def _message(row: RowMapping) -> GangTrace:
    return GangTrace(row["id"], row["steps"])


async def keep(tx: AsyncConnection, job_id: str, world_size: int, event: TraceEvent) -> None:
    """Store a rank's part of a step if its trace is open. Call only with the job's row locked. `world_size`: of its attempt.

    Raises ValueError for a number that is not finite or out of range, or an unknown action; then nothing is stored.
    """
    trace = ids.parse("trace", event.id)
    row = None if trace is None else await orders.by_id(tx, traces, job_id, trace)
    if row is not None and row["settled_at"] is None:
        columns = trace_spans.columns(event, world_size)
        await rows.keep(tx, {"job_id": job_id, "trace_id": row["id"], **columns})


async def settle(tx: AsyncConnection, job_id: str, event: TraceFinishedEvent, ts: float) -> TraceFinishedEvent | None:
    """The gang's event as it is stored, or None if the trace was settled before. Call only with the job's row locked."""
    first, last = event.steps or (None, None)
    outcome = {
        "state": "done" if event.done else "failed",
        "message": event.message or None,
        "first_step": first,
        "last_step": last,
    }
    row = await orders.settle(tx, traces, job_id, event.id, {"settled_at": ts, **outcome})
    return None if row is None else _event(row)


async def settle_all(tx: AsyncConnection, job: RowMapping, cause: Cause) -> None:
    """Settle the open traces of an ended attempt as failed. Call only with the job's row locked."""
    outcome = {"state": "failed", "message": "the attempt ended before its ranks reported all steps"}
    await order_frame.settle_all(tx, traces, job, cause, outcome, _event)


def _event(row: RowMapping) -> TraceFinishedEvent:
    return TraceFinishedEvent(
        id=row["id"],
        done=row["state"] == "done",
        message=row["message"],
        steps=None if row["first_step"] is None else (row["first_step"], row["last_step"]),
        asked_by=row["actor"],
        asked_at=row["asked_at"],
    )


async def page(store: Store, job: str, *, before: str | None = None, limit: int = 20) -> Traces:
    """Traces of a job (id or name) below the id `before`, newest first. Raises JobNotFound, InvalidCursor."""
    async with store.read() as tx:
        found, page_rows, after = await order_frame.page(tx, _KIND, job, before, limit)
        return Traces(items=[await trace_record(tx, found, row) for row in page_rows], next=after)


_KIND: Final = OrderKind("trace", traces, _prepare, keep_settled=KEPT - 1)
