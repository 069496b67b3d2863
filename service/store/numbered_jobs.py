"""SQL of lists of jobs in the order of a number: duration, device time, or a logged metric. Jobs without the number come last.

Durations and device times grow while a job runs. So all pages of a list have them as of one time, that of its first page. What can
grow no more is stored, and read in the order of an index: `jobs.duration_s`, and `jobs.device_s` of the attempts that have ended.
The numbers of the few jobs that had not ended at that time are computed, and sorted. Metrics are as they are when a page is read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Double,
    FromClause,
    Select,
    String,
    and_,
    exists,
    func,
    literal,
    or_,
    select,
    tuple_,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from ..schemas.job_order import Order, Sort
from .attempts import spent
from .jobs import Filter, conditions
from .program_tables import metric_series as series
from .tables import attempts, jobs

_METRICS: Final[Mapping[Order, ColumnElement[float]]] = {
    Order.METRIC: series.c.last,
    Order.LOWEST: series.c.lowest,
    Order.HIGHEST: series.c.highest,
}


@dataclass(frozen=True)
class Numbering:
    """By which number jobs are sorted, and as of which time (unix seconds). `gone`: see `attempts.spent`."""

    sort: Sort
    at: float
    gone: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Place:
    """A job in the list: its id, and its number if it has one."""

    id: str
    number: float | None


@dataclass(frozen=True)
class Part:
    """Some jobs: rows with their number and id, in which `jobs` are joined. Those of several parts have no job in common."""

    rows: FromClause
    number: ColumnElement[float]
    id: ColumnElement[str]
    only: Sequence[ColumnElement[bool]] = ()


async def page(
    tx: AsyncConnection, wanted: Filter, numbering: Numbering, after: Place | None, limit: int
) -> list[Place]:
    """At most `limit` jobs that come after a place, with their numbers."""
    found: dict[str, float] = {}
    if after is None or after.number is not None:
        for statement in with_number(wanted, numbering, after, limit):
            # A job that ends between two statements may be in both, where clocks differ.
            found = {row.id: float(row.number) for row in await tx.execute(statement)} | found
    pairs = sorted(((number, job_id) for job_id, number in found.items()), reverse=numbering.sort.descending)
    ordered = [Place(job_id, number) for number, job_id in pairs[:limit]]
    if len(ordered) == limit:
        return ordered
    beyond = after.id if after is not None and after.number is None else None
    last: set[str] = set()
    for query in without_number(wanted, numbering, beyond, limit - len(ordered)):
        last |= set((await tx.execute(query)).scalars())
    rest = sorted(last - found.keys(), reverse=True)[: limit - len(ordered)]
    return [*ordered, *(Place(job_id, None) for job_id in rest)]


def with_number(wanted: Filter, numbering: Numbering, after: Place | None, limit: int) -> list[Select[str, float]]:
    """The queries of the jobs that have the number: each has the first `limit` of its part, in order."""
    statements: list[Select[str, float]] = []
    descending = numbering.sort.descending
    for part in _parts(numbering):
        statement = select(part.id.label("id"), part.number.label("number")).select_from(part.rows)
        statement = statement.where(*part.only, part.number.is_not(None), *conditions(wanted))
        if after is not None:
            statement = statement.where(*_beyond(part, after, descending))
        key = (part.number.desc(), part.id.desc()) if descending else (part.number, part.id)
        statements.append(statement.order_by(*key).limit(limit))
    return statements


def _beyond(part: Part, after: Place, descending: bool) -> list[ColumnElement[bool]]:
    """The place itself is left out by its id: a sum that is computed again may differ in its last digit."""
    here = tuple_(part.number, part.id)
    there = tuple_(literal(after.number, Double), literal(after.id, String))
    return [here < there if descending else here > there, part.id != after.id]


def without_number(wanted: Filter, numbering: Numbering, before: str | None, limit: int) -> list[Select[str]]:
    """The queries of the jobs that have no number: the first `limit` of most of them, newest first, and all of the others."""
    earlier = () if before is None else (jobs.c.id < before,)
    most, *others = (
        select(jobs.c.id).where(*only, *conditions(wanted), *earlier) for only in _missing(numbering.sort, numbering.at)
    )
    # The others are few, and not ordered: else SQLite reads all jobs in that order to find them.
    return [most.order_by(jobs.c.id.desc()).limit(limit), *others]


def _parts(numbering: Numbering) -> list[Part]:
    sort, at = numbering.sort, numbering.at
    if sort.order == Order.DURATION:
        return _durations(at)
    if sort.order == Order.DEVICE_TIME:
        return _device_times(at, numbering.gone)
    of_jobs = series.join(jobs, jobs.c.id == series.c.job_id)
    return [Part(of_jobs, _METRICS[sort.order], series.c.job_id, (series.c.name == sort.metric,))]


def _missing(sort: Sort, at: float) -> list[Sequence[ColumnElement[bool]]]:
    """Jobs that had not begun at that time: first those that have not even now, and any that ended without its number."""
    if sort.order == Order.DURATION:
        never = (jobs.c.duration_s.is_(None), or_(jobs.c.started_at.is_(None), jobs.c.finished_at + 0.0 <= at))
        return [never, *((*then, jobs.c.started_at >= at) for then in _unfinished(at))]
    if sort.order == Order.DEVICE_TIME:
        began = exists().where(attempts.c.job_id == jobs.c.id, attempts.c.started_at < at)
        never = (jobs.c.device_s.is_(None), jobs.c.id.not_in(_open(at)))
        return [never, (jobs.c.id.in_(_open(at)), ~began)]
    mine = (series.c.job_id == jobs.c.id, series.c.name == sort.metric)
    return [(~exists().where(*mine, _METRICS[sort.order].is_not(None)),)]


def _durations(at: float) -> list[Part]:
    so_far: ColumnElement[float] = literal(at, Double) - jobs.c.started_at
    growing = [Part(jobs, so_far, jobs.c.id, (*then, jobs.c.started_at < at)) for then in _unfinished(at)]
    # As an expression, for which no index is searched: the rows are read in the order of the other one.
    return [*growing, Part(jobs, jobs.c.duration_s, jobs.c.id, (jobs.c.finished_at + 0.0 <= at,))]


def _unfinished(at: float) -> list[tuple[ColumnElement[bool]]]:
    """Jobs that had not ended at that time. Apart, so that each part is searched in an index."""
    return [(jobs.c.finished_at.is_(None),), (jobs.c.finished_at > at,)]


def _device_times(at: float, gone: Mapping[str, float]) -> list[Part]:
    every = attempts.join(jobs, jobs.c.id == attempts.c.job_id)
    began = and_(attempts.c.job_id.in_(_open(at)), attempts.c.started_at < at)
    whole = select(attempts.c.job_id, func.sum(spent(at, gone)).label("number")).select_from(every).where(began)
    growing = whole.group_by(attempts.c.job_id).subquery()
    of_jobs = growing.join(jobs, jobs.c.id == growing.c.job_id)
    return [
        Part(of_jobs, growing.c.number, jobs.c.id),
        Part(jobs, jobs.c.device_s, jobs.c.id, (jobs.c.id.not_in(_open(at)),)),
    ]


def _open(at: float) -> CompoundSelect[Any]:
    """Jobs with an attempt that had not ended at that time."""
    mine = select(attempts.c.job_id)
    return mine.where(attempts.c.ended_at.is_(None)).union_all(mine.where(attempts.c.ended_at > at))
