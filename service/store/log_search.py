"""SQL that looks for lines in the table `logs`: always between two positions, so that its cost is known beforehand."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from sqlalchemy import ColumnElement, and_, func, or_, select
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from .tables import logs

Level = Literal["error", "warning"]

#: What a line says that is of a level, whatever wrote it: Python's logging, a traceback, a C++ library. A level has those above it too.
_ERROR: Final = ("error", "critical", "fatal", "exception", "traceback")
_WORDS: Final[dict[Level, tuple[str, ...]]] = {"error": _ERROR, "warning": (*_ERROR, "warn")}


@dataclass(frozen=True)
class Wanted:
    """Which lines: all that is set must hold. Upper and lower case of ASCII letters are the same. Times are unix seconds."""

    text: str = ""
    rank: int | None = None
    level: Level | None = None
    since: float | None = None
    until: float | None = None


async def reach(tx: AsyncConnection, job_id: str, rank: int | None, after: int, count: int) -> int | None:
    """The position of the `count`-th line after a position, None where there are fewer."""
    mine = _mine(job_id, rank)
    statement = select(logs.c.position).where(*mine, logs.c.position > after).order_by(logs.c.position)
    return (await tx.execute(statement.offset(count - 1).limit(1))).scalar_one_or_none()


async def matching(
    tx: AsyncConnection, job_id: str, wanted: Wanted, after: int, until: int, limit: int
) -> Sequence[RowMapping]:
    inside = and_(*_mine(job_id, wanted.rank), logs.c.position > after, logs.c.position <= until)
    statement = select(logs).where(inside, *_filters(wanted)).order_by(logs.c.position).limit(limit)
    return (await tx.execute(statement)).mappings().all()


async def before(tx: AsyncConnection, job_id: str, rank: int | None, position: int, count: int) -> Sequence[RowMapping]:
    """The last `count` lines before a position, in order."""
    statement = select(logs).where(*_mine(job_id, rank), logs.c.position < position)
    return (await tx.execute(statement.order_by(logs.c.position.desc()).limit(count))).mappings().all()[::-1]


def _mine(job_id: str, rank: int | None) -> list[ColumnElement[bool]]:
    return [logs.c.job_id == job_id, *([] if rank is None else [logs.c.rank == rank])]


def _filters(wanted: Wanted) -> list[ColumnElement[bool]]:
    lower: ColumnElement[Any] = func.lower(logs.c.text)
    filters: list[ColumnElement[bool]] = []
    if wanted.text:
        filters.append(lower.contains(wanted.text.lower(), autoescape=True))
    if wanted.level is not None:
        filters.append(or_(*(lower.contains(word) for word in _WORDS[wanted.level])))
    if wanted.since is not None:
        filters.append(logs.c.ts >= wanted.since)
    if wanted.until is not None:
        filters.append(logs.c.ts <= wanted.until)
    return filters
