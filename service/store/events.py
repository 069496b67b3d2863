"""SQL of the table `events`: a job's events except its steps and log lines."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import BigInteger, ColumnElement, CompoundSelect, Select, cast, func, literal, or_, select
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from .jobs import take_positions
from .tables import events

#: The step that an event is about. A number that is asked for may have more than 32 bits.
_STEP: Final[ColumnElement[int]] = cast(events.c.data["step"].as_string(), BigInteger)


async def insert(tx: AsyncConnection, row: Mapping[str, Any]) -> None:
    """Store one event whose position was taken together with its job's move."""
    await tx.execute(events.insert().values(row))


async def insert_all(tx: AsyncConnection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Store events of several jobs whose positions were taken together with the jobs' changes."""
    if rows:
        await tx.execute(events.insert(), list(rows))


async def append(tx: AsyncConnection, job_id: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Store events (attempt, kind, ts, actor, data) at the job's next positions."""
    if not rows:
        return
    first = await take_positions(tx, job_id, "event_pos", len(rows)) + 1
    await tx.execute(events.insert(), [{**row, "job_id": job_id, "position": first + i} for i, row in enumerate(rows)])


async def after(tx: AsyncConnection, job_id: str, position: int, limit: int) -> Sequence[RowMapping]:
    statement = select(events).where(events.c.job_id == job_id, events.c.position > position)
    return (await tx.execute(statement.order_by(events.c.position).limit(limit))).mappings().all()


async def at(tx: AsyncConnection, job_id: str, position: int) -> RowMapping | None:
    statement = select(events).where(events.c.job_id == job_id, events.c.position == position)
    return (await tx.execute(statement)).mappings().first()


async def newest(tx: AsyncConnection, job_id: str, kind: str) -> RowMapping | None:
    """The last event of a kind."""
    statement = select(events).where(events.c.job_id == job_id, events.c.kind == kind)
    return (await tx.execute(statement.order_by(events.c.position.desc()).limit(1))).mappings().first()


async def newest_by(tx: AsyncConnection, job_id: str, attempt: int, actor: str) -> RowMapping | None:
    """The last event of an attempt by an actor."""
    mine = (events.c.job_id == job_id, events.c.attempt == attempt, events.c.actor == actor)
    statement = select(events).where(*mine).order_by(events.c.position.desc()).limit(1)
    return (await tx.execute(statement)).mappings().first()


async def first_state(tx: AsyncConnection, job_id: str, state: str) -> RowMapping | None:
    """The first event of the job's move to a state."""
    moves = (events.c.job_id == job_id, events.c.kind == "state", events.c.data["state"].as_string() == state)
    return (await tx.execute(select(events).where(*moves).order_by(events.c.position).limit(1))).mappings().first()


async def of_step(tx: AsyncConnection, job_id: str, kind: str, step: int) -> RowMapping | None:
    """The last event of a kind that is about a step."""
    mine = (events.c.job_id == job_id, events.c.kind == kind, _STEP == step)  # noqa: SIM300
    statement = select(events).where(*mine).order_by(events.c.position.desc()).limit(1)
    return (await tx.execute(statement)).mappings().first()


async def first_at(tx: AsyncConnection, job_id: str, kind: str, step: int) -> RowMapping | None:
    """Of the events of a kind about a step or a later one, the last that is about the first of these steps."""
    statement = select(events).where(events.c.job_id == job_id, events.c.kind == kind, _STEP >= step)  # noqa: SIM300
    return (await tx.execute(statement.order_by(_STEP, events.c.position.desc()).limit(1))).mappings().first()


async def of_kind_after(
    tx: AsyncConnection, job_id: str, kind: str, position: int, before: int | None, limit: int
) -> Sequence[RowMapping]:
    """Events of one kind in order, between two positions."""
    statement = select(events).where(events.c.job_id == job_id, events.c.kind == kind, events.c.position > position)
    if before is not None:
        statement = statement.where(events.c.position < before)
    return (await tx.execute(statement.order_by(events.c.position).limit(limit))).mappings().all()


async def of_kind_before(
    tx: AsyncConnection, job_id: str, kind: str, before: int | None, limit: int
) -> Sequence[RowMapping]:
    """Events of one kind, the newest first."""
    statement = select(events).where(events.c.job_id == job_id, events.c.kind == kind)
    if before is not None:
        statement = statement.where(events.c.position < before)
    return (await tx.execute(statement.order_by(events.c.position.desc()).limit(limit))).mappings().all()


async def of_kind(tx: AsyncConnection, job_id: str, kind: str, limit: int) -> Sequence[RowMapping]:
    """Events of one kind in order. If there are more than `limit` (from 2), they are thinned evenly; the first and last are returned.

    Costs a search in the index for each that is returned, however many there are.
    """
    first = await of_kind_after(tx, job_id, kind, 0, None, limit + 1)
    if len(first) <= limit:
        return first
    return await _where(tx, job_id, events.c.position.in_(await _evenly(tx, job_id, kind, first[0]["position"], limit)))


async def evals(tx: AsyncConnection, job_id: str, newest: int | None, limit: int) -> Sequence[RowMapping]:
    """Validations in order. If there are more than `limit` (from 4), only those that count, and these thinned evenly if they are more.

    The first, the newest, the lowest and the highest loss stay; to find them costs a walk over all. `newest`: the job's newest step.
    """
    first = await of_kind_after(tx, job_id, "eval", 0, None, limit + 1)
    if len(first) <= limit:
        return first
    at, loss, number = events.c.position, events.c.data["loss"].as_float(), func.row_number().over(order_by=_STEP)
    counting = at.in_(_counting(job_id, 0, newest))
    numbered = select(at, loss.label("loss"), number.label("number")).where(events.c.job_id == job_id, counting)
    every = numbered.cte("every")
    count = int((await tx.execute(select(func.count()).select_from(every))).scalar_one())
    if count <= limit:
        return await _where(tx, job_id, counting)
    known = select(every.c.position).where(every.c.loss.is_not(None)).limit(1)
    ends = [known.order_by(end).scalar_subquery() for end in (every.c.loss, every.c.loss.desc())]
    stride = -(-(count - 1) // (limit - 3))
    evenly = (every.c.number - 1) % stride == 0
    kept = or_(evenly, every.c.number == count, *(every.c.position == end for end in ends))
    return await _where(tx, job_id, at.in_(select(every.c.position).where(kept)))


async def evals_after(
    tx: AsyncConnection, job_id: str, since: int, newest: int | None, limit: int
) -> Sequence[RowMapping]:
    """The newest `limit` validations after step `since` that count, in order. `newest`: the job's newest step."""
    counting = _counting(job_id, since, newest).order_by(_STEP.desc()).limit(limit)
    return await _where(tx, job_id, events.c.position.in_(counting))


def _counting(job_id: str, since: int, newest: int | None) -> Select[tuple[int]]:
    """Positions of the validations after step `since` that count: of each step the last one.

    Those beyond the job's `newest` step are of an attempt that a later one, from an older checkpoint, has replaced.
    """
    mine = [events.c.job_id == job_id, events.c.kind == "eval", _STEP > since]  # noqa: SIM300
    mine += [] if newest is None else [_STEP <= newest]  # noqa: SIM300
    return select(func.max(events.c.position)).where(*mine).group_by(_STEP)


async def _evenly(tx: AsyncConnection, job_id: str, kind: str, first: int, limit: int) -> CompoundSelect[tuple[int]]:
    """Positions of at most `limit` events of one kind, at equal distances from the one at `first` to the last."""
    mine = (events.c.job_id == job_id, events.c.kind == kind)
    last = int((await tx.execute(select(func.max(events.c.position)).where(*mine))).scalar_one())
    stride = -(-(last - first) // (limit - 1))
    at = select(literal(first, BigInteger).label("position")).cte("at", recursive=True)
    following = select(func.min(events.c.position)).where(*mine, events.c.position >= at.c.position + stride)
    at = at.union_all(select(following.scalar_subquery()).where(at.c.position < last))
    return select(at.c.position).union(select(literal(last, BigInteger)))


async def _where(tx: AsyncConnection, job_id: str, *conditions: ColumnElement[bool]) -> Sequence[RowMapping]:
    statement = select(events).where(events.c.job_id == job_id, *conditions)
    return (await tx.execute(statement.order_by(events.c.position))).mappings().all()
