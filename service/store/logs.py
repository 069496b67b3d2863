"""SQL of the table `logs`: one row per line; positions are common to all ranks and attempts of a job."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Select, func, select
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from . import log_sizes
from .jobs import take_positions
from .tables import logs


async def append(tx: AsyncConnection, job_id: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Store lines (attempt, rank, stream, line, text, ts) at the job's next positions."""
    if not rows:
        return
    first = await take_positions(tx, job_id, "log_pos", len(rows)) + 1
    await tx.execute(logs.insert(), [{**row, "job_id": job_id, "position": first + i} for i, row in enumerate(rows)])
    await log_sizes.add(tx, job_id, [row["text"] for row in rows])


async def removed(tx: AsyncConnection, job: RowMapping) -> int:
    """The number of lines that were removed, which are the log's first: positions have no gaps. `job` is its row, with `log_pos`."""
    first = await tx.execute(select(func.min(logs.c.position)).where(logs.c.job_id == job["id"]))
    return int(first.scalar_one() or job["log_pos"] + 1) - 1


async def after(tx: AsyncConnection, job_id: str, rank: int | None, position: int, limit: int) -> Sequence[RowMapping]:
    statement = _of(job_id, rank).where(logs.c.position > position).order_by(logs.c.position).limit(limit)
    return (await tx.execute(statement)).mappings().all()


async def last(tx: AsyncConnection, job_id: str, rank: int | None, count: int) -> Sequence[RowMapping]:
    """The last `count` lines, in order."""
    statement = _of(job_id, rank).order_by(logs.c.position.desc()).limit(count)
    return (await tx.execute(statement)).mappings().all()[::-1]


async def first_beginning(
    tx: AsyncConnection, job_id: str, rank: int, stream: str, text: str, position: int
) -> RowMapping | None:
    """The first line of a rank's stream after a position that begins with `text`. Reads the rank's lines up to it."""
    begins = func.substr(logs.c.text, 1, len(text)) == text
    statement = _of(job_id, rank).where(logs.c.position > position, logs.c.stream == stream, begins)
    return (await tx.execute(statement.order_by(logs.c.position).limit(1))).mappings().first()


def _of(job_id: str, rank: int | None) -> Select[*tuple[Any, ...]]:
    statement = select(logs).where(logs.c.job_id == job_id)
    return statement if rank is None else statement.where(logs.c.rank == rank)
