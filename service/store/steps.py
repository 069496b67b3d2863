"""SQL of the table `steps`: one record per job and step; a step that is reported again never creates a second record.

If the same attempt reports a step again, the first record stays. If a later attempt trains it again (from a checkpoint), the later
record replaces it, at a new position, so that live readers receive it.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, groupby
from typing import Any

from sqlalchemy import (
    CTE,
    ColumnElement,
    Integer,
    Select,
    case,
    cast,
    func,
    literal,
    select,
    union_all,
)
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from .dialect import insert
from .jobs import take_positions
from .program_tables import metric_series
from .rollups import WIDTHS, place
from .tables import checkpoints, rollups, steps

_KEY = ("job_id", "step")

#: First and last step.
Range = tuple[int, int]


async def append(tx: AsyncConnection, job_id: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Store step records (all columns but job_id and position). Call only with the job's row locked."""
    if not rows:
        return
    first = await take_positions(tx, job_id, "step_pos", len(rows)) + 1
    statement = insert(tx, steps)
    replaced = {column.name: statement.excluded[column.name] for column in steps.c if column.name not in _KEY}
    statement = statement.on_conflict_do_update(
        index_elements=list(_KEY), set_=replaced, where=steps.c.attempt < statement.excluded.attempt
    )
    await tx.execute(statement, [{**row, "job_id": job_id, "position": first + i} for i, row in enumerate(rows)])


async def after(tx: AsyncConnection, job_id: str, position: int, limit: int) -> Sequence[RowMapping]:
    """Records in the order in which they were stored."""
    statement = select(steps).where(steps.c.job_id == job_id, steps.c.position > position)
    return (await tx.execute(statement.order_by(steps.c.position).limit(limit))).mappings().all()


async def span(tx: AsyncConnection, job: RowMapping, since: int) -> tuple[int, int] | None:
    """The lowest and the highest step beyond `since`, or None. As separate subqueries, each reads only one end of the primary key.

    `job` is its row. Steps beyond its newest one are of an attempt that a later one, from an older checkpoint, has replaced.
    """
    mine = [steps.c.job_id == job["id"], steps.c.step > since]
    mine += [] if job["step"] is None else [steps.c.step <= job["step"]]
    ends = (select(end(steps.c.step)).where(*mine).scalar_subquery() for end in (func.min, func.max))
    row = (await tx.execute(select(*ends))).one()
    return None if row[0] is None else (int(row[0]), int(row[1]))


async def between(tx: AsyncConnection, job_id: str, low: int, high: int) -> Sequence[RowMapping]:
    statement = select(steps).where(steps.c.job_id == job_id, steps.c.step.between(low, high))
    return (await tx.execute(statement.order_by(steps.c.step))).mappings().all()


async def newest(tx: AsyncConnection, job: RowMapping) -> RowMapping | None:
    """The record of the job's newest step. `job` is its row."""
    statement = select(steps).where(steps.c.job_id == job["id"], steps.c.step == job["step"])
    return (await tx.execute(statement)).mappings().first()


async def mean_loss(tx: AsyncConnection, job_id: str, low: int, high: int) -> float | None:
    """The mean of the losses of these steps; None if there is none, or one of them is not finite."""
    mean, known, all_ = func.avg(steps.c.loss), func.count(steps.c.loss), func.count()
    row = (
        await tx.execute(select(mean, known, all_).where(steps.c.job_id == job_id, steps.c.step.between(low, high)))
    ).one()
    return None if row[0] is None or row[1] < row[2] else float(row[0])


async def extremes(tx: AsyncConnection, job_id: str, low: int, high: int, buckets: int) -> Sequence[RowMapping]:
    """For each of at most `buckets` equal ranges of steps the records of lowest and highest loss; and the first and last of all.

    The work is done inside the database, so that a million steps are neither sent nor sorted. A wide range consists of whole roll-ups: of
    their extremes the best one is looked up in the steps. Only the ragged ends of the first and the last range are read step by step.
    """
    first, width, levels = ranges_of(low, high, buckets)
    picks = [select(literal(low)), select(cast(literal(high), Integer))]
    for ranges, widths in _parts(low, high, first, width, levels):
        for end in ("low", "high"):
            inner = ranges
            for level in widths:
                inner = _best_rollups(job_id, inner, level, end)
            picks.append(_best_steps(job_id, inner, end))
    chosen = {int(step) for step in (await tx.execute(union_all(*picks))).scalars() if step is not None}
    statement = select(steps).where(steps.c.job_id == job_id, steps.c.step.in_(chosen))
    found = (await tx.execute(statement.order_by(steps.c.step))).mappings().all()
    kept = {low, high} | _best_of_ranges(found, first, width)
    return [row for row in found if row["step"] in kept]


def _parts(low: int, high: int, first: int, width: int, levels: Sequence[int]) -> Iterator[tuple[CTE, Sequence[int]]]:
    """Parts of the ranges, and the widths of the roll-ups by which each is read, widest first; without any step by step."""
    start = select(literal(first).label("start")).cte("bucket", recursive=True)
    start = start.union_all(select(start.c.start + width).where(start.c.start + width <= high))
    begin, last = start.c.start, start.c.start + (width - 1)
    if not levels:
        ends = case((begin < low, low), else_=begin), case((last > high, high), else_=last)
        yield select(ends[0].label("first"), ends[1].label("last")).cte("by_step"), ()
        return
    yield select(begin.label("first"), last.label("last")).where(begin > low, last < high).cte("whole"), levels
    # About as many roll-ups as a ragged end has steps.
    narrow = [level for level in levels if level**2 <= width] or levels[-1:]
    cut = {(max(low, at), min(high, at + width - 1)) for at in (first, high - (high - first) % width)}
    ragged, inner = zip(*(_split(*one, narrow[0]) for one in sorted(cut)), strict=True)
    for name, ranges, widths in (("ragged", chain(*ragged), ()), ("inner", chain(*inner), narrow)):
        listed = [select(literal(begin).label("first"), literal(last).label("last")) for begin, last in ranges]
        if listed:
            yield union_all(*listed).cte(name), widths


def _split(first: int, last: int, width: int) -> tuple[Sequence[Range], Sequence[Range]]:
    """The ragged ends of a range, and the whole roll-ups between them, as ranges of steps."""
    begin, end = -(-(first - 1) // width) * width, last // width * width
    if begin >= end:
        return [(first, last)], []
    return [one for one in ((first, begin), (end + 1, last)) if one[0] <= one[1]], [(begin + 1, end)]


def _best_of_ranges(found: Sequence[RowMapping], first: int, width: int) -> set[int]:
    """Of each range the steps with the lowest and the highest loss, as several parts of it have theirs."""
    known = ((row["loss"], int(row["step"])) for row in found if row["loss"] is not None)
    ranges = [list(inside) for _, inside in groupby(known, lambda one: (one[1] - first) // width)]
    return {step for one in ranges for _, step in (min(one), max(one, key=lambda pair: (pair[0], -pair[1])))}


def ranges_of(low: int, high: int, buckets: int) -> tuple[int, int, Sequence[int]]:
    """At most `buckets` equal ranges that contain steps `low` to `high`: the first one's first step, and the steps of each.

    Third: the widths of the roll-ups that a range consists of, widest first. A range has at least four, as its width is rounded up.
    """
    width = -(-(high - low + 1) // buckets)
    levels = [level for level in reversed(WIDTHS) if level * 4 <= width]
    if not levels:
        return low, width, ()
    first = place(low, levels[0]) * levels[0] + 1
    return first, -(-(high - first + 1) // (buckets * levels[0])) * levels[0], levels


def _best_steps(job_id: str, ranges: CTE, end: str) -> Select[*tuple[Any, ...]]:
    """Of each range the step with the lowest or the highest loss, the first one if several have it; null without a loss."""
    inside = (steps.c.job_id == job_id, steps.c.step.between(ranges.c.first, ranges.c.last))
    return _best(ranges, steps.c.step, steps.c.loss, end, inside)


def _best_rollups(job_id: str, ranges: CTE, width: int, end: str) -> CTE:
    """The same of roll-ups, as the ranges of their steps. Computed once, because both ends of a range depend on it."""
    number, name = rollups.c.bucket, f"{ranges.name}_{end}_{width}"
    inside = number.between((ranges.c.first - 1) // literal(width), (ranges.c.last - 1) // literal(width))
    mine = (rollups.c.job_id == job_id, rollups.c.width == width, inside)
    best = _best(ranges, number, rollups.c[f"loss_{end}"], end, mine).cte(f"{name}_best").prefix_with("MATERIALIZED")
    one = best.c.best
    return select((one * width + 1).label("first"), ((one + 1) * width).label("last")).cte(name)


def _best(
    ranges: CTE, number: ColumnElement[int], loss: ColumnElement[float], end: str, inside: Sequence[ColumnElement[bool]]
) -> Select[*tuple[Any, ...]]:
    order = loss.desc() if end == "high" else loss
    best = select(number).where(*inside, loss.is_not(None)).order_by(order, number).limit(1)
    return select(best.correlate(ranges).scalar_subquery().label("best")).select_from(ranges)


async def furthest(tx: AsyncConnection, job_id: str) -> int:
    """The highest step that the job trained, or that its program logged or saved; 0 before the first.

    A later attempt of a program lowers it, if the program logs again from an earlier step.
    """
    kinds = (steps.c.step, metric_series.c.last_step, checkpoints.c.step)
    newest = (select(func.max(kind).label("step")).where(kind.table.c.job_id == job_id) for kind in kinds)
    every = union_all(*newest).subquery()
    return (await tx.execute(select(func.max(every.c.step)))).scalar_one() or 0


async def earliest(tx: AsyncConnection, job_id: str) -> int | None:
    """The lowest step that the job reported; None before that."""
    found: int | None = (await tx.execute(select(func.min(steps.c.step)).where(steps.c.job_id == job_id))).scalar_one()
    return found
