"""The rules that all kinds of orders share: one idempotency key is one order, an order is settled once, pages are by id.

An order is a user's request to a stored job: a fault, a trace, a profile, a command, an operation on a checkpoint. Its row is created,
settled and deleted only while the job's row is locked.
"""

import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sqlalchemy import Table
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ...workers.messages.event import ExecEvent, FaultEvent, ProfileEvent, TraceFinishedEvent, to_json
from .. import ids
from ..cluster.interface import UserOrder
from ..errors import IdempotencyConflict, InvalidCursor, JobNotRunning
from ..ids import gang_name
from ..jobs.transitions import Cause
from ..queries.jobs import existing
from ..states import State
from ..store import events, jobs, orders

Request = TypeVar("Request")


@dataclass(frozen=True)
class OrderKind(Generic[Request]):
    """One kind of order. Every field of its request is a column of its table."""

    noun: ids.Kind
    table: Table
    #: Checks a request. Returns the columns of its order, or the row of an open order that does the same; raises the refusal.
    prepare: Callable[[AsyncConnection, RowMapping, Request], Awaitable[dict[str, Any] | RowMapping]]
    #: Settled orders that a job keeps beside a new one; None: all.
    keep_settled: int | None = None


@dataclass(frozen=True)
class Delivery:
    """An open order on its way to its gang: `token` is its job's lease."""

    token: str
    gang: str
    order: UserOrder


async def create(
    tx: AsyncConnection, kind: OrderKind[Request], job: str, request: Request, key: str | None, actor: str
) -> tuple[RowMapping, RowMapping]:
    """Store an order of a job (id or name), unless one has this idempotency key already, or does the same.

    Returns the rows of the job, now locked, and of the order. Raises JobNotFound, IdempotencyConflict, and what `kind.prepare` raises.
    """
    locked = await jobs.lock(tx, (await existing(tx, job))["id"])
    assert locked is not None
    row = await _replayed(tx, kind, locked["id"], request, key) if key else None
    if row is None:
        row = await _created(tx, kind, locked, request, {"idempotency_key": key, "actor": actor})
    return locked, row


def refuse_unless_running(job: RowMapping, what: str) -> None:
    """Raises JobNotRunning, which says `what` is possible in running jobs only."""
    if job["state"] != State.RUNNING:
        remedy = "Try again once it is running." if job["finished_at"] is None else "Submit it again."
        raise JobNotRunning(f"{job['id']} is {job['state']}; {what}.", field="job", remedy=remedy)


async def _replayed(
    tx: AsyncConnection, kind: OrderKind[Request], job_id: str, request: Request, key: str
) -> RowMapping | None:
    row = await orders.by_key(tx, kind.table, job_id, key)
    if row is not None and any(row[name] != value for name, value in vars(request).items()):
        raise IdempotencyConflict(
            f"This idempotency key belongs to {row['id']}, which is another {kind.noun}.",
            field="Idempotency-Key",
            remedy=f"Use a new key for a new {kind.noun}.",
        )
    return row


async def _created(
    tx: AsyncConnection, kind: OrderKind[Request], job: RowMapping, request: Request, origin: dict[str, Any]
) -> RowMapping:
    prepared = await kind.prepare(tx, job, request)
    if isinstance(prepared, RowMapping):
        return prepared
    now = time.time()
    mine = {"job_id": job["id"], "id": ids.new_id(kind.noun, now), "asked_at": now}
    row = await orders.insert(tx, kind.table, {**mine, **origin, **vars(request), **prepared})
    if kind.keep_settled is not None:
        await orders.forget_settled(tx, kind.table, job["id"], kind.keep_settled)
    return row


async def page(
    tx: AsyncConnection, kind: OrderKind[Any], job: str, before: str | None, limit: int
) -> tuple[RowMapping, Sequence[RowMapping], str | None]:
    """A job (id or name), its orders below the id `before`, newest first, and the `before` of the next page.

    Raises InvalidCursor, JobNotFound.
    """
    if before is not None and ids.parse(kind.noun, before) is None:
        message = f"No {kind.noun} has the id {before[:80]!r}."
        raise InvalidCursor(message, field="before", remedy="Use `next` of the page before.")
    found = await existing(tx, job)
    rows = await orders.before(tx, kind.table, found["id"], before, limit + 1)
    return found, rows[:limit], rows[limit - 1]["id"] if len(rows) > limit else None


async def deliveries(
    tx: AsyncConnection, table: Table, tokens: Collection[str], message: Callable[[RowMapping], UserOrder]
) -> list[Delivery]:
    """The open orders of the gangs under these leases, oldest first."""
    rows = await orders.open_under(tx, table, tokens)
    return [Delivery(row["lease_token"], gang_name(row["job_id"], row["attempt"]), message(row)) for row in rows]


async def settle_all(
    tx: AsyncConnection,
    table: Table,
    job: RowMapping,
    cause: Cause,
    values: Mapping[str, Any],
    event: Callable[[RowMapping], ExecEvent | FaultEvent | ProfileEvent | TraceFinishedEvent],
) -> None:
    """Settle the open orders of an ended attempt, with an event for each. Call only with the job's row locked."""
    rows = await orders.settle_all(tx, table, job["id"], {"settled_at": cause.now, **values})
    same = {"attempt": job["attempt"], "ts": cause.ts, "actor": cause.actor}
    reported = [event(row) for row in rows]
    await events.append(tx, job["id"], [{**same, "kind": one.kind, "data": to_json(one)} for one in reported])
