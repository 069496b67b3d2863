"""SQL of the table `logs`: one row per line; positions are common to all ranks and attempts of a job."""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Select, func, select
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from . import log_sizes
from .jobs import take_positions
from .log_search import Size
from .tables import logs

#: Lines of one statement: a batch of a live stream, and one more.
_AT_ONCE: Final = 512


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


async def after(
    tx: AsyncConnection, job_id: str, rank: int | None, position: int, most: Size
) -> tuple[Sequence[RowMapping], bool]:
    """The first lines after a position, in order, as many as `most` allows; and whether there are more.

    Of bytes, at most one line is returned after `most.bytes` of text are reached.
    """
    statement = _of(job_id, rank).order_by(logs.c.position)
    return await _cut(tx, statement, position, most, operator.gt)


async def before(
    tx: AsyncConnection, job_id: str, rank: int | None, position: int, most: Size
) -> tuple[Sequence[RowMapping], bool]:
    """The last lines before a position, as `after`."""
    statement = _of(job_id, rank).order_by(logs.c.position.desc())
    found, more = await _cut(tx, statement, position, most, operator.lt)
    return found[::-1], more


async def _cut(
    tx: AsyncConnection,
    statement: Select[*tuple[Any, ...]],
    position: int,
    most: Size,
    beyond: Callable[[Any, Any], Any],
) -> tuple[list[RowMapping], bool]:
    """The first rows of `statement` beyond a position, read by parts, so that few are read that are not returned."""
    found: list[RowMapping] = []
    left = most
    while True:
        count = min(left.lines + 1, _AT_ONCE)
        rows = (await tx.execute(statement.where(beyond(logs.c.position, position)).limit(count))).mappings().all()
        for row in rows:
            if left.empty:
                return found, True
            found.append(row)
            left -= Size(1, len(row["text"].encode()))
        if len(rows) < count:
            return found, False
        position = found[-1]["position"]


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
