"""SQL of the table `steps`: one record per job and step; a step that is reported again never creates a second record.

If the same attempt reports a step again, the first record stays. If a later attempt trains it again (from a checkpoint), the later
record replaces it, at a new position, so that live readers receive it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Integer, cast, func, literal, select, union_all
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from .dialect import insert
from .jobs import take_positions
from .program_tables import metric_series
from .tables import checkpoints, steps

_KEY = ("job_id", "step")


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


async def mean_loss(tx: AsyncConnection, job_id: str, low: int, high: int) -> float | None:
    """The mean of the losses of these steps; None if there is none, or one of them is not finite."""
    mean, known, all_ = func.avg(steps.c.loss), func.count(steps.c.loss), func.count()
    row = (
        await tx.execute(select(mean, known, all_).where(steps.c.job_id == job_id, steps.c.step.between(low, high)))
    ).one()
    return None if row[0] is None or row[1] < row[2] else float(row[0])


async def extremes(tx: AsyncConnection, job_id: str, low: int, high: int, buckets: int) -> Sequence[RowMapping]:
    """For each of `buckets` equal ranges of steps the records of lowest and highest loss; and the first and last of all.

    Every bucket is two bounded walks along the primary key inside the database, so that a million steps are neither sent nor sorted.
    """
    width = -(-(high - low + 1) // buckets)
    bucket = select(literal(low).label("start")).cte("bucket", recursive=True)
    bucket = bucket.union_all(select(bucket.c.start + width).where(bucket.c.start + width <= high))

    def pick(*order: Any) -> Any:
        inside = steps.c.step.between(bucket.c.start, bucket.c.start + (width - 1))
        lowest = select(steps.c.step).where(steps.c.job_id == job_id, inside, steps.c.loss.is_not(None))
        best = lowest.order_by(*order, steps.c.step).limit(1).correlate(bucket).scalar_subquery()
        return select(best).select_from(bucket)

    picks = union_all(
        pick(steps.c.loss), pick(steps.c.loss.desc()), select(literal(low)), select(cast(literal(high), Integer))
    )
    chosen = {int(step) for step in (await tx.execute(picks)).scalars() if step is not None}
    statement = select(steps).where(steps.c.job_id == job_id, steps.c.step.in_(chosen))
    return (await tx.execute(statement.order_by(steps.c.step))).mappings().all()


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
