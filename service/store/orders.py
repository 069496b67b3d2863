"""SQL that the tables of orders share: `faults`, `traces`, `operations`. An order is open until it is settled, which happens once.

Each function takes the table, whose rows have `job_id`, `id`, `idempotency_key` and `settled_at`. Ids sort by the time of the request.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Table, delete, select, update
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from .tables import jobs


async def insert(tx: AsyncConnection, table: Table, values: Mapping[str, Any]) -> RowMapping:
    """Store an order. Call only with the job's row locked."""
    stored: RowMapping = (await tx.execute(table.insert().values(values).returning(table))).mappings().one()
    return stored


async def forget_settled(tx: AsyncConnection, table: Table, job_id: str, kept: int) -> None:
    """Delete a job's settled orders except the newest `kept`. Call only with the job's row locked."""
    settled = (table.c.job_id == job_id, table.c.settled_at.is_not(None))
    newest = select(table.c.id).where(*settled).order_by(table.c.id.desc()).limit(kept)
    await tx.execute(delete(table).where(*settled, table.c.id.not_in(newest)))


async def by_key(tx: AsyncConnection, table: Table, job_id: str, idempotency_key: str) -> RowMapping | None:
    """The order that was stored under this idempotency key."""
    statement = select(table).where(table.c.job_id == job_id, table.c.idempotency_key == idempotency_key)
    return (await tx.execute(statement)).mappings().first()


async def by_id(tx: AsyncConnection, table: Table, job_id: str, order_id: str) -> RowMapping | None:
    """One order of a job."""
    statement = select(table).where(table.c.job_id == job_id, table.c.id == order_id)
    return (await tx.execute(statement)).mappings().first()


async def before(
    tx: AsyncConnection, table: Table, job_id: str, order_id: str | None, limit: int
) -> Sequence[RowMapping]:
    """At most `limit` orders of a job with ids below `order_id`, newest first; without an id the newest."""
    statement = select(table).where(table.c.job_id == job_id)
    if order_id is not None:
        statement = statement.where(table.c.id < order_id)
    return (await tx.execute(statement.order_by(table.c.id.desc()).limit(limit))).mappings().all()


async def open_of(tx: AsyncConnection, table: Table, job_id: str) -> Sequence[RowMapping]:
    """A job's open orders, oldest first."""
    statement = select(table).where(table.c.job_id == job_id, table.c.settled_at.is_(None))
    return (await tx.execute(statement.order_by(table.c.id))).mappings().all()


async def open_under(tx: AsyncConnection, table: Table, tokens: Collection[str]) -> Sequence[RowMapping]:
    """The open orders of the current attempts under these leases, each with its `lease_token`, oldest first."""
    statement = (
        select(table, jobs.c.lease_token)
        .join(jobs, jobs.c.id == table.c.job_id)
        .where(jobs.c.lease_token.in_(list(tokens)), jobs.c.attempt == table.c.attempt, table.c.settled_at.is_(None))
        .order_by(table.c.id)
    )
    return (await tx.execute(statement)).mappings().all()


async def settle(
    tx: AsyncConnection, table: Table, job_id: str, order_id: str, values: Mapping[str, Any]
) -> RowMapping | None:
    """Store the end of an open order: `settled_at` and what else `values` has. Call only with the job's row locked.

    Returns the order; None when it is not open, and then nothing is stored.
    """
    mine = (table.c.job_id == job_id, table.c.id == order_id, table.c.settled_at.is_(None))
    settled = await tx.execute(update(table).where(*mine).values(values).returning(table))
    row: RowMapping | None = settled.mappings().first()
    return row


async def settle_all(tx: AsyncConnection, table: Table, job_id: str, values: Mapping[str, Any]) -> Sequence[RowMapping]:
    """Store the end of all open orders of a job, and return them. Call only with the job's row locked."""
    mine = (table.c.job_id == job_id, table.c.settled_at.is_(None))
    settled = await tx.execute(update(table).where(*mine).values(values).returning(table))
    rows: Sequence[RowMapping] = settled.mappings().all()
    return rows
