"""SQL of the table `trace_parts`: what the ranks of a trace report, stored once. The traces themselves are `orders.py`."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from . import dialect
from .tables import trace_parts as parts


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
