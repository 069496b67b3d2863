"""SQL of the tables `traces` and `trace_parts`. A trace is open until it is settled, which happens once; a part is kept once."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import delete, func, select, update
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.dml import ReturningUpdate

from . import dialect
from .tables import jobs, traces
from .tables import trace_parts as parts


async def insert(tx: AsyncConnection, values: Mapping[str, Any], kept: int) -> RowMapping:
    """Store an order, and forget all of the job's traces but the newest `kept`. Call only with the job's row locked."""
    stored: RowMapping = (await tx.execute(traces.insert().values(values).returning(traces))).mappings().one()
    mine = traces.c.job_id == values["job_id"]
    newest = select(traces.c.id).where(mine).order_by(traces.c.id.desc()).limit(kept)
    await tx.execute(delete(traces).where(mine, traces.c.id.not_in(newest)))
    return stored


async def by_key(tx: AsyncConnection, job_id: str, idempotency_key: str) -> RowMapping | None:
    statement = select(traces).where(traces.c.job_id == job_id, traces.c.idempotency_key == idempotency_key)
    return (await tx.execute(statement)).mappings().first()


async def get(tx: AsyncConnection, job_id: str, trace_id: str) -> RowMapping | None:
    statement = select(traces).where(traces.c.job_id == job_id, traces.c.id == trace_id)
    return (await tx.execute(statement)).mappings().first()


async def before(tx: AsyncConnection, job_id: str, trace_id: str | None, limit: int) -> Sequence[RowMapping]:
    """The newest first, below an id."""
    statement = select(traces).where(traces.c.job_id == job_id)
    if trace_id is not None:
        statement = statement.where(traces.c.id < trace_id)
    return (await tx.execute(statement.order_by(traces.c.id.desc()).limit(limit))).mappings().all()


async def open_one(tx: AsyncConnection, job_id: str) -> RowMapping | None:
    statement = select(traces).where(traces.c.job_id == job_id, traces.c.settled_at.is_(None))
    return (await tx.execute(statement)).mappings().first()


async def open_of(tx: AsyncConnection, tokens: Collection[str]) -> Sequence[RowMapping]:
    """The open traces of the jobs under these leases, each with its lease's token."""
    statement = (
        select(traces, jobs.c.lease_token)
        .join(jobs, jobs.c.id == traces.c.job_id)
        .where(jobs.c.lease_token.in_(list(tokens)), jobs.c.attempt == traces.c.attempt, traces.c.settled_at.is_(None))
        .order_by(traces.c.id)
    )
    return (await tx.execute(statement)).mappings().all()


async def settle(
    tx: AsyncConnection, job_id: str, trace_id: str, now: float, outcome: Mapping[str, Any]
) -> RowMapping | None:
    """The trace, if it was open till now. `outcome`: state, message, first_step, last_step. Call only with the job's row locked."""
    statement = _settled(now, outcome).where(traces.c.job_id == job_id, traces.c.id == trace_id)
    return (await tx.execute(statement)).mappings().first()


async def settle_all(tx: AsyncConnection, job_id: str, now: float, outcome: Mapping[str, Any]) -> Sequence[RowMapping]:
    """Those that were open till now. Call only with the job's row locked."""
    return (await tx.execute(_settled(now, outcome).where(traces.c.job_id == job_id))).mappings().all()


def _settled(now: float, outcome: Mapping[str, Any]) -> ReturningUpdate[*tuple[Any, ...]]:
    return update(traces).where(traces.c.settled_at.is_(None)).values(settled_at=now, **outcome).returning(traces)


async def keep(tx: AsyncConnection, values: Mapping[str, Any]) -> None:
    """Store a part, once. Call only with the job's row locked."""
    await tx.execute(dialect.insert(tx, parts).values(values).on_conflict_do_nothing())


async def heads(tx: AsyncConnection, job_id: str, trace_id: str) -> Sequence[RowMapping]:
    """All parts in order of step and rank, without what is large."""
    columns = (parts.c.step, parts.c.rank, parts.c.began, parts.c.seconds, parts.c.head)
    statement = select(*columns).where(parts.c.job_id == job_id, parts.c.trace_id == trace_id)
    return (await tx.execute(statement.order_by(parts.c.step, parts.c.rank))).mappings().all()


async def of_step(
    tx: AsyncConnection, job_id: str, trace_id: str, step: int, ranks: Collection[int] | None
) -> Sequence[RowMapping]:
    """Whole parts of one step, of these ranks or all, in order of rank."""
    statement = select(parts).where(parts.c.job_id == job_id, parts.c.trace_id == trace_id, parts.c.step == step)
    if ranks is not None:
        statement = statement.where(parts.c.rank.in_(list(ranks)))
    return (await tx.execute(statement.order_by(parts.c.rank))).mappings().all()


async def of_rank(tx: AsyncConnection, job_id: str, trace_id: str, rank: int) -> Sequence[RowMapping]:
    """Whole parts of one rank, in order of their steps."""
    statement = select(parts).where(parts.c.job_id == job_id, parts.c.trace_id == trace_id, parts.c.rank == rank)
    return (await tx.execute(statement.order_by(parts.c.step))).mappings().all()


async def count(tx: AsyncConnection, job_id: str, trace_id: str) -> int:
    """Parts that are stored."""
    mine = (parts.c.job_id == job_id, parts.c.trace_id == trace_id)
    return int((await tx.execute(select(func.count()).select_from(parts).where(*mine))).scalar_one())
