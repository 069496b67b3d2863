"""SQL of the table `trace_parts`: what the ranks of a trace report, stored once. The traces themselves are `orders.py`."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import delete, func, select, tuple_, update
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from . import dialect
from .tables import trace_parts as parts
from .tables import traces


async def keep(tx: AsyncConnection, values: Mapping[str, Any]) -> None:
    """Store a part, once, and count its bytes. Call only with the job's row locked."""
    insert = dialect.insert(tx, parts).values(values).on_conflict_do_nothing().returning(parts.c.rank)
    if (await tx.execute(insert)).first() is not None:
        mine = (traces.c.job_id == values["job_id"], traces.c.id == values["trace_id"])
        await tx.execute(update(traces).where(*mine).values(bytes=traces.c.bytes + len(values["body"])))


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


async def remove_oldest(tx: AsyncConnection, job_id: str, limit: int) -> bool:
    """Delete up to `limit` parts of a job's oldest trace, and with the last of them the trace, whose bytes count until then.

    Returns whether there was a trace. Call only with the job's row locked.
    """
    oldest = select(traces.c.id).where(traces.c.job_id == job_id).order_by(traces.c.id).limit(1)
    trace_id = (await tx.execute(oldest)).scalar_one_or_none()
    if trace_id is None:
        return False
    key, mine = (parts.c.step, parts.c.rank), (parts.c.job_id == job_id, parts.c.trace_id == trace_id)
    some = select(*key).where(*mine).order_by(*key).limit(limit)
    if (await tx.execute(delete(parts).where(*mine, tuple_(*key).in_(some)))).rowcount < limit:
        await tx.execute(delete(traces).where(traces.c.job_id == job_id, traces.c.id == trace_id))
    return True
