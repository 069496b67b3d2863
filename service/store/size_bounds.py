"""SQL of the bounds by size of jobs' logs and traces: a job's own, and the sum of all jobs.

Sizes are counted where records are stored, so no statement here reads the records to sum them. A sum over all jobs reads a short row
per job (`log_sizes`), or per trace, of which a job has few.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from sqlalchemy import ColumnElement, Table, func, select
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from . import log_sizes, removals
from . import traces as trace_rows
from .tables import jobs, traces
from .tables import log_sizes as log_size_rows

Kind = Literal["logs", "traces"]
_SIZES: Final[Mapping[Kind, Table]] = {"logs": log_size_rows, "traces": traces}
_MIB: Final = 1 << 20


async def stored(tx: AsyncConnection, kind: Kind, job_id: str | None = None) -> int:
    """Bytes of this kind of one job, or of all."""
    sizes = _SIZES[kind]
    total = select(func.sum(sizes.c.bytes))
    statement = total if job_id is None else total.where(sizes.c.job_id == job_id)
    return int((await tx.execute(statement)).scalar_one() or 0)


async def removable(tx: AsyncConnection, kind: Kind) -> int:
    """Bytes of this kind of all ended jobs that are not pinned."""
    sizes = _SIZES[kind]
    total = select(func.sum(sizes.c.bytes)).join(jobs, jobs.c.id == sizes.c.job_id).where(*_removable(tx))
    return int((await tx.execute(total)).scalar_one() or 0)


async def uncounted(tx: AsyncConnection, every: bool, after: str, limit: int) -> Sequence[str]:
    """Ids of jobs after one that have log lines of an earlier version, not counted yet: all, or those with a bound of their own."""
    rows = log_size_rows
    statement = select(rows.c.job_id).where(rows.c.uncounted > 0, rows.c.job_id > after)
    if not every:
        own = (jobs.c.retention.is_not(None), _own("logs") > 0, *_removable(tx))
        statement = statement.join(jobs, jobs.c.id == rows.c.job_id).where(*own)
    return (await tx.execute(statement.order_by(rows.c.job_id).limit(limit))).scalars().all()


async def count_some(tx: AsyncConnection, job_id: str, limit: int) -> bool:
    """Count up to `limit` of a job's log lines that are not counted. Returns whether some are left."""
    job = select(jobs.c.id).where(jobs.c.id == job_id).with_for_update()
    return (await tx.execute(job)).first() is not None and await log_sizes.count_some(tx, job_id, limit)


async def oversized(tx: AsyncConnection, kind: Kind, after: str, limit: int) -> Sequence[str]:
    """Ids of ended jobs after one, without pinned ones, that store more of this kind than their specs say."""
    sizes = _SIZES[kind]
    size = select(func.sum(sizes.c.bytes)).where(sizes.c.job_id == jobs.c.id).scalar_subquery()
    over = (jobs.c.retention.is_not(None), _own(kind) > 0, size > _own(kind))
    wanted = (*_removable(tx), *over, jobs.c.id > after)
    return (await tx.execute(select(jobs.c.id).where(*wanted).order_by(jobs.c.id).limit(limit))).scalars().all()


async def oldest(tx: AsyncConnection, kind: Kind, limit: int) -> Sequence[RowMapping]:
    """Ended jobs that store this kind (id, bytes), without pinned ones, in the order in which they ended."""
    sizes = _SIZES[kind]
    statement = (
        select(jobs.c.id, func.sum(sizes.c.bytes).label("bytes"))
        .join(sizes, sizes.c.job_id == jobs.c.id)
        .where(sizes.c.bytes > 0, *_removable(tx))
        .group_by(jobs.c.id, jobs.c.finished_at)
    )
    return (await tx.execute(statement.order_by(jobs.c.finished_at, jobs.c.id).limit(limit))).mappings().all()


async def shrink(tx: AsyncConnection, kind: Kind, job_id: str, most: int | None) -> bool:
    """Delete some of the oldest records of an ended job that is not pinned, if there are more than allowed: by all jobs `most`
    bytes, by None what its spec says of this job. Returns whether more may have to go.

    The job's row is locked first: so of two dispatchers one waits, and finds what the other left.
    """
    job = select(_own(kind)).where(jobs.c.id == job_id, *_removable(tx)).with_for_update()
    own = (await tx.execute(job)).scalar_one_or_none()
    if own is None or (most is None and own <= 0):
        return False
    bound, counted = (own, job_id) if most is None else (most, None)
    excess = await stored(tx, kind, counted) - bound
    if excess <= 0:
        return False
    if kind == "logs":
        return await log_sizes.remove_oldest(tx, job_id, removals.MOST_ROWS, excess)
    return await trace_rows.remove_oldest(tx, job_id, removals.MOST_LARGE_ROWS)


def _own(kind: Kind) -> ColumnElement[float]:
    """Bytes that a job's spec allows; 0: any number."""
    own: ColumnElement[float] = func.coalesce(jobs.c.retention[f"{kind}_mib"].as_float(), 0.0) * _MIB
    return own


def _removable(tx: AsyncConnection) -> tuple[ColumnElement[bool], ...]:
    return (*removals.ended(tx), jobs.c.removing.is_(False))
