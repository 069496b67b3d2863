"""SQL that searches lines in the table `logs`: always between two positions, so that its cost is bounded."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from sqlalchemy import ColumnElement, and_, func, or_, select
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from .dialect import ascii_lower, contains, lowered, octets
from .tables import logs

Level = Literal["error", "warning"]
Stream = Literal["stdout", "stderr"]

#: Words in lines of a level, from any writer: Python's logging, a traceback, a C++ library. A level includes those above it.
_ERROR: Final = ("error", "critical", "fatal", "exception", "traceback")
_WORDS: Final[dict[Level, tuple[str, ...]]] = {"error": _ERROR, "warning": (*_ERROR, "warn")}


@dataclass(frozen=True)
class LogFilter:
    """Conditions for lines: all that are set must hold. Upper and lower case of ASCII letters are the same. Times are unix seconds.

    With `regex`, `text` is a pattern, which is no condition here: lines are compared with it outside the database.
    """

    text: str = ""
    rank: int | None = None
    level: Level | None = None
    since: float | None = None
    until: float | None = None
    stream: Stream | None = None
    regex: bool = False


class Size(NamedTuple):
    """An amount of log."""

    lines: int
    bytes: int

    def __sub__(self, other: "Size") -> "Size":
        return Size(self.lines - other.lines, self.bytes - other.bytes)

    @property
    def empty(self) -> bool:
        return self.lines <= 0 or self.bytes <= 0


class Span(NamedTuple):
    """Positions after `after` up to `until`."""

    after: int
    until: int


async def next_part(
    tx: AsyncConnection, job_id: str, rank: int | None, span: Span, most: Size
) -> tuple[Span, Size] | None:
    """The first lines of `span`: at most `most.lines`, and at most one after `most.bytes` bytes are reached. None without lines."""
    size = octets(tx, logs.c.text).label("size")
    inside = and_(*_mine(job_id, rank), *_within(span))
    lines = select(logs.c.position, size).where(inside).order_by(logs.c.position).limit(most.lines).subquery()
    before = (func.sum(lines.c.size).over(order_by=lines.c.position) - lines.c.size).label("before")
    counted = select(lines, before).subquery()
    sums = select(func.max(counted.c.position), func.count(), func.sum(counted.c.size))
    last, count, total = (await tx.execute(sums.where(counted.c.before < most.bytes))).one()
    return None if last is None else (Span(span.after, last), Size(count, int(total)))


async def matching(tx: AsyncConnection, job_id: str, wanted: LogFilter, span: Span, limit: int) -> Sequence[RowMapping]:
    inside = and_(*_mine(job_id, wanted.rank), *_within(span))
    statement = select(logs).where(inside, *_filters(tx, wanted)).order_by(logs.c.position).limit(limit)
    return (await tx.execute(statement)).mappings().all()


def _mine(job_id: str, rank: int | None) -> list[ColumnElement[bool]]:
    return [logs.c.job_id == job_id, *([] if rank is None else [logs.c.rank == rank])]


def _within(span: Span) -> list[ColumnElement[bool]]:
    return [logs.c.position > span.after, logs.c.position <= span.until]


def _filters(tx: AsyncConnection, wanted: LogFilter) -> list[ColumnElement[bool]]:
    lower = ascii_lower(tx, logs.c.text)
    filters: list[ColumnElement[bool]] = []
    if wanted.text and not wanted.regex:
        filters.append(contains(tx, lower, lowered(wanted.text)))
    if wanted.level is not None:
        filters.append(or_(*(contains(tx, lower, word) for word in _WORDS[wanted.level])))
    if wanted.since is not None:
        filters.append(logs.c.ts >= wanted.since)
    if wanted.until is not None:
        filters.append(logs.c.ts <= wanted.until)
    if wanted.stream is not None:
        filters.append(logs.c.stream == wanted.stream)
    return filters
