"""SQL of the tables `metric_series` and `metric_chunks`: what programs log, bounded by name and by job.

A job has at most 1,000 names, and a name at most 4,096 buckets (`packing/metric_curve.py`): 130 kB, whatever the number of steps. A batch
reads and writes only the chunks of the steps that it has.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import and_, delete, func, or_, select
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ...workers.messages.metric_block import MOST_NAMES
from .dialect import ascii_lower, contains, insert, lowered
from .packing.metric_curve import Bucket, MetricCurve, chunks_of, packed, unpacked
from .program_tables import metric_chunks as chunks
from .program_tables import metric_series as series

#: Variables that a statement may have.
_AT_ONCE: Final = 400
#: Curves that are in memory at once: each may have a megabyte of buckets.
_IN_MEMORY: Final = 32

#: What a curve has beside its buckets.
_CURVE: Final = ("width", "run", "last_step", "last", "last_count", "lowest", "highest")

#: One value: the run that logged it, its step, and the value; None if that is not finite.
Point = tuple[int, int, float | None]


async def append(tx: AsyncConnection, job_id: str, points: Mapping[str, Sequence[Point]]) -> list[str]:
    """Store values by name. Call only with the job's row locked. Returns the names for which there is no room."""
    known = {row["name"]: row for row in await _named(tx, job_id, list(points))}
    new = [name for name in points if name not in known]
    count = await _count(tx, job_id) if new else 0
    room = max(0, MOST_NAMES - count)
    numbers = {name: int(row["number"]) for name, row in known.items()}
    numbers |= {name: count + at for at, name in enumerate(new[:room])}
    names = list(numbers)
    for at in range(0, len(names), _IN_MEMORY):
        some = names[at : at + _IN_MEMORY]
        await _extend(tx, job_id, {name: (numbers[name], known.get(name)) for name in some}, points)
    return new[room:]


async def _extend(
    tx: AsyncConnection,
    job_id: str,
    names: Mapping[str, tuple[int, RowMapping | None]],
    points: Mapping[str, Sequence[Point]],
) -> None:
    """Add the points of these names, each with its number and its row if there is one."""
    curves = {name: _curve(row) for name, (_, row) in names.items()}
    whole = [name for name, curve in curves.items() if any(curve.needs_all(run, [at]) for run, at, _ in points[name])]
    wanted = {
        number: None if name in whole else chunks_of(curves[name].width, (step for _, step, _ in points[name]))
        for name, (number, row) in names.items()
        if row is not None
    }
    loaded = await _load(tx, job_id, wanted)
    for name, curve in curves.items():
        curve.buckets = loaded.get(names[name][0], {})
        for point in points[name]:
            curve.take(*point)
    by_number = {names[name][0]: (name, curve) for name, curve in curves.items()}
    await _store_series(tx, job_id, by_number)
    replaced = [names[name][0] for name in whole]
    await _store_chunks(tx, job_id, {number: curve for number, (_, curve) in by_number.items()}, replaced)


async def page(
    tx: AsyncConnection, job_id: str, text: str | None, after: str | None, limit: int
) -> Sequence[RowMapping]:
    """At most `limit` metrics in order of their names, after a name; only those whose name contains `text`."""
    statement = select(series).where(series.c.job_id == job_id)
    if text:
        statement = statement.where(contains(tx, ascii_lower(tx, series.c.name), lowered(text)))
    if after is not None:
        statement = statement.where(series.c.name > after)
    return (await tx.execute(statement.order_by(series.c.name).limit(limit))).mappings().all()


async def names_of(tx: AsyncConnection, job_ids: Collection[str], text: str | None, limit: int) -> Sequence[RowMapping]:
    """At most `limit` names that these jobs logged, each with the number of jobs and the newest step: those of the most jobs first."""
    count, newest = func.count().label("jobs"), func.max(series.c.last_step).label("last_step")
    statement = select(series.c.name, count, newest).where(series.c.job_id.in_(job_ids)).group_by(series.c.name)
    if text:
        statement = statement.where(contains(tx, ascii_lower(tx, series.c.name), lowered(text)))
    return (await tx.execute(statement.order_by(count.desc(), series.c.name).limit(limit))).mappings().all()


async def newest_of(tx: AsyncConnection, job_ids: Collection[str], names: Collection[str]) -> Sequence[RowMapping]:
    """The newest values and the extremes under these names, at most 400 jobs and names together, in one query."""
    wanted = ("job_id", "name", "last_step", "last", "lowest", "highest")
    statement = select(*(series.c[column] for column in wanted)).where(
        series.c.job_id.in_(job_ids), series.c.name.in_(names)
    )
    return (await tx.execute(statement)).mappings().all()


async def read(
    tx: AsyncConnection, job_id: str, names: Sequence[str], low: int, high: int | None
) -> dict[str, tuple[RowMapping, dict[int, Bucket]]]:
    """By name the metric's row, and its buckets between two steps; None: to the newest."""
    rows = await _named(tx, job_id, names)
    ranges = {row["number"]: (low, min(row["last_step"], row["last_step"] if high is None else high)) for row in rows}
    wanted = {
        row["number"]: chunks_of(row["width"], [*range(first, last + 1, row["width"]), last])
        for row in rows
        for first, last in [ranges[row["number"]]]
        if first <= last
    }
    loaded = await _load(tx, job_id, wanted)
    found = {}
    for row in rows:
        first, last = (step // row["width"] for step in ranges[row["number"]])
        buckets = loaded.get(row["number"], {})
        found[str(row["name"])] = row, {place: buckets[place] for place in sorted(buckets) if first <= place <= last}
    return found


async def _named(tx: AsyncConnection, job_id: str, names: Sequence[str]) -> list[RowMapping]:
    found: list[RowMapping] = []
    for at in range(0, len(names), _AT_ONCE):
        statement = select(series).where(series.c.job_id == job_id, series.c.name.in_(names[at : at + _AT_ONCE]))
        found.extend((await tx.execute(statement)).mappings())
    return found


async def _count(tx: AsyncConnection, job_id: str) -> int:
    return int((await tx.execute(select(func.count()).where(series.c.job_id == job_id))).scalar_one())


async def _load(
    tx: AsyncConnection, job_id: str, wanted: Mapping[int, Collection[int] | None]
) -> dict[int, dict[int, Bucket]]:
    """Buckets by number of the series: of these chunks, or of all for None."""
    conditions = [
        chunks.c.number == number if places is None else and_(chunks.c.number == number, chunks.c.chunk.in_(places))
        for number, places in wanted.items()
    ]
    found: dict[int, dict[int, Bucket]] = {}
    for at in range(0, len(conditions), _AT_ONCE // 4):
        statement = select(chunks).where(chunks.c.job_id == job_id, or_(*conditions[at : at + _AT_ONCE // 4]))
        for row in (await tx.execute(statement)).mappings():
            found.setdefault(row["number"], {}).update(unpacked(row["chunk"], row["packed"]))
    return found


async def _store_series(tx: AsyncConnection, job_id: str, curves: Mapping[int, tuple[str, MetricCurve]]) -> None:
    rows = [
        {"job_id": job_id, "number": number, "name": name, **_columns(curve)}
        for number, (name, curve) in curves.items()
    ]
    statement = insert(tx, series)
    changed = {name: statement.excluded[name] for name in _CURVE}
    if rows:
        await tx.execute(statement.on_conflict_do_update(index_elements=["job_id", "number"], set_=changed), rows)


async def _store_chunks(
    tx: AsyncConnection, job_id: str, curves: Mapping[int, MetricCurve], replaced: Sequence[int]
) -> None:
    """Store the chunks that are loaded. Of the `replaced` series there are no others."""
    for at in range(0, len(replaced), _AT_ONCE):
        numbers = replaced[at : at + _AT_ONCE]
        await tx.execute(delete(chunks).where(chunks.c.job_id == job_id, chunks.c.number.in_(numbers)))
    rows = [
        {"job_id": job_id, "number": number, "chunk": chunk, "packed": content}
        for number, curve in curves.items()
        for chunk, content in packed(curve.buckets).items()
    ]
    statement = insert(tx, chunks)
    update = {"packed": statement.excluded["packed"]}
    if rows:
        await tx.execute(
            statement.on_conflict_do_update(index_elements=["job_id", "number", "chunk"], set_=update), rows
        )


def _curve(row: RowMapping | None) -> MetricCurve:
    return MetricCurve() if row is None else MetricCurve(**{name: row[name] for name in _CURVE})


def _columns(curve: MetricCurve) -> dict[str, Any]:
    return {name: getattr(curve, name) for name in _CURVE} | {"last_step": max(0, curve.last_step)}
