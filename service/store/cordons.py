"""SQL of the tables `node_faults` and `cordons`: faults of nodes, and the periods in which a node gets no new gangs.

A cordon's row stays when it is over: it records what was done, by whom and why.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, and_, case, delete, exists, func, literal, or_, select, tuple_, update
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from .cluster_tables import cordons
from .cluster_tables import node_faults as faults
from .dialect import insert, unix_begin, unix_now
from .sweep_tables import trials

#: Seconds within which a client repeats a request whose answer it has lost.
_REPEAT_S: Final = 60.0
#: Of a fault and a cordon: the cordon is of its node, and ends after it.
_ENDS_LATER: Final = (
    cordons.c.node == faults.c.node,
    func.coalesce(cordons.c.ended_at, cordons.c.until) >= faults.c.at,
)


async def note(tx: AsyncConnection, fault: Mapping[str, Any], window_s: float) -> bool:
    """Store a fault of an attempt on a node, once; False when it was stored before. Deletes faults older than the window."""
    now = unix_now(tx)
    await tx.execute(delete(faults).where(faults.c.at < now - window_s))
    statement = insert(tx, faults).values(**fault, at=now).on_conflict_do_nothing()
    return (await tx.execute(statement.returning(faults.c.node))).first() is not None


async def causes(tx: AsyncConnection, node: str, window_s: float) -> Sequence[RowMapping]:
    """The cause of each of the node's faults that count, and whose it is: a job's or, of a trial, its sweep's (`of`)."""
    statement = select(faults.c.cause, _owner(faults.c.job_id).label("of"))
    statement = statement.where(faults.c.node == node, *_counting(tx, window_s)).order_by(faults.c.at)
    return (await tx.execute(statement)).mappings().all()


async def broken_for(tx: AsyncConnection, job_id: str, number: int, window_s: float) -> set[str]:
    """The nodes with this number of faults that count, or more, of the job or of the sweep whose trial it is."""
    own = _owner(faults.c.job_id) == _owner(literal(job_id))
    statement = select(faults.c.node).where(own, *_counting(tx, window_s)).group_by(faults.c.node)
    return set((await tx.execute(statement.having(func.count() >= number))).scalars())


async def owners_elsewhere(
    tx: AsyncConnection, node: str, owners: Collection[str], window_s: float, least: int
) -> set[str]:
    """Those of these jobs and sweeps (`of` in `causes`) with `least` faults on one other node within the window.

    Also those from before a cordon of that node, which an operator may have lifted.
    """
    owner = _owner(faults.c.job_id).label("owner")
    recent = (
        select(owner, faults.c.node).where(faults.c.node != node, faults.c.at >= unix_now(tx) - window_s).subquery()
    )
    often = select(recent.c.owner).where(recent.c.owner.in_(owners)).group_by(recent.c.owner, recent.c.node)
    return set((await tx.execute(often.having(func.count() >= least))).scalars())


def _owner(job_id: ColumnElement[str]) -> ColumnElement[str]:
    sweep = select(func.max(trials.c.sweep_id)).where(trials.c.job_id == job_id)
    return func.coalesce(sweep.scalar_subquery(), job_id)


def _counting(tx: AsyncConnection, window_s: float) -> tuple[ColumnElement[bool], ...]:
    """Faults within the window, and since their node's last cordon ended."""
    return faults.c.at >= unix_now(tx) - window_s, ~exists().where(*_ENDS_LATER)


async def counts(tx: AsyncConnection, window_s: float) -> dict[str, int]:
    """Node → the number of its faults within the window, and since its last cordon ended; during a cordon with those that led to it."""
    over = exists().where(*_ENDS_LATER, ~_holds(tx))
    statement = select(faults.c.node, func.count()).where(faults.c.at >= unix_now(tx) - window_s, ~over)
    return {node: int(count) for node, count in await tx.execute(statement.group_by(faults.c.node))}


async def begin(tx: AsyncConnection, values: Mapping[str, Any], seconds: float | None) -> RowMapping:
    """Cordon a node for `seconds`, or until it is lifted if that is None. Ends the cordon that was in force.

    But if that one has the same values, and its end was at most `_REPEAT_S` earlier, it stays and gets the new end: the client lost the
    answer, and has repeated its request.
    """
    now = unix_begin(tx)  # one time for both parts of the insertion
    until = None if seconds is None else now + seconds
    ends = cordons.c.until.is_(None) if until is None else cordons.c.until.between(until - _REPEAT_S, until)
    same = (cordons.c[name] == value for name, value in values.items())
    repeated = update(cordons).where(_holds(tx), ends, *same).values(until=until).returning(*cordons.c)
    if (row := (await tx.execute(repeated)).mappings().first()) is not None:
        return row
    await end(tx, values["node"], values["actor"])
    given = {**values, "since": now, "until": until, "ended_at": None, "ended_by": None}
    statement = insert(tx, cordons).values(given)  # of two cordons within one tick of the clock, the later one applies
    statement = statement.on_conflict_do_update(index_elements=["node", "since"], set_=given)
    return (await tx.execute(statement.returning(*cordons.c))).mappings().one()


async def end(tx: AsyncConnection, node: str, actor: str) -> bool:
    """Lift the cordon that is in force for the node; False if there is none."""
    statement = update(cordons).where(cordons.c.node == node, _holds(tx))
    statement = statement.values(ended_at=unix_now(tx), ended_by=actor)
    return (await tx.execute(statement.returning(cordons.c.node))).first() is not None


async def forget_faults(tx: AsyncConnection, node: str, window_s: float) -> None:
    """Delete the node's faults that count. Those from before a cordon stay, for `owners_elsewhere`."""
    await tx.execute(delete(faults).where(faults.c.node == node, *_counting(tx, window_s)))


async def earlier(tx: AsyncConnection, node: str, memory_s: float) -> int:
    """How many times faults have cordoned the node in the last `memory_s` seconds."""
    statement = select(func.count()).select_from(cordons)
    statement = statement.where(cordons.c.node == node, cordons.c.since > unix_now(tx) - memory_s, ~cordons.c.by_hand)
    return int((await tx.execute(statement)).scalar_one())


async def holding(tx: AsyncConnection) -> dict[str, RowMapping]:
    """Node → the cordon that is in force for it."""
    rows = (await tx.execute(select(cordons).where(_holds(tx)))).mappings()
    return {row["node"]: row for row in rows}


async def history(tx: AsyncConnection, limit: int) -> Sequence[RowMapping]:
    """All cordons, the newest first."""
    statement = select(cordons).order_by(cordons.c.since.desc(), cordons.c.node).limit(limit)
    return (await tx.execute(statement)).mappings().all()


async def changes(
    tx: AsyncConnection, within: tuple[float, float], node: str | None, upto: tuple[float, str] | None, limit: int
) -> Sequence[RowMapping]:
    """Begins and ends of cordons (at, node, kind, actor, message) between two times, the newest first, up to a time and node."""
    lifted = cordons.c.ended_at.is_not(None)
    begun = select(
        cordons.c.since.label("at"),
        cordons.c.node,
        literal("cordoned").label("kind"),
        cordons.c.actor,
        cordons.c.message,
    )
    ended = select(
        func.coalesce(cordons.c.ended_at, cordons.c.until),
        cordons.c.node,
        case((lifted, "uncordoned"), else_="cordon_expired"),
        case((lifted, cordons.c.ended_by)),
        literal(""),
    )
    every = begun.union_all(ended).subquery()
    statement = select(every).where(every.c.at.between(*within))
    if node is not None:
        statement = statement.where(every.c.node == node)
    if upto is not None:
        statement = statement.where(tuple_(every.c.at, every.c.node) <= tuple_(*upto))
    order = (every.c.at.desc(), every.c.node.desc())
    return (await tx.execute(statement.order_by(*order).limit(limit))).mappings().all()


def _holds(tx: AsyncConnection) -> ColumnElement[bool]:
    return and_(cordons.c.ended_at.is_(None), or_(cordons.c.until.is_(None), cordons.c.until > unix_now(tx)))
