"""SQL of the tables `gang_nodes` and `node_changes`: which attempts were on which nodes, and when nodes joined and were lost."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, bindparam, case, delete, exists, select, tuple_, update
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from .cluster_tables import gang_nodes, node_changes
from .dialect import insert
from .tables import attempts, jobs

#: Parameters of one statement.
_AT_ONCE = 500

#: Job, attempt and node.
Share = tuple[str, int, str]


async def begin(tx: AsyncConnection, shares: Mapping[Share, Mapping[str, float]], now: float) -> None:
    """Attempts have devices (`cpu`, `gpu`) of nodes from now on; of what one had before on a node the larger share stays.

    Jobs that this database does not have are left out.
    """
    ids = sorted({job for job, _, _ in shares})
    known: set[str] = set()
    for start in range(0, len(ids), _AT_ONCE):
        some = jobs.c.id.in_(ids[start : start + _AT_ONCE])
        known |= set((await tx.execute(select(jobs.c.id).where(some))).scalars())
    rows = [
        {"job_id": job, "attempt": attempt, "node": node, **part, "since": now, "until": None}
        for (job, attempt, node), part in sorted(shares.items())
        if job in known
    ]
    if rows:
        statement = insert(tx, gang_nodes)
        most = {name: _larger(gang_nodes.c[name], statement.excluded[name]) for name in ("cpu", "gpu")}
        keys = ["job_id", "attempt", "node"]
        await tx.execute(statement.on_conflict_do_update(index_elements=keys, set_={**most, "until": None}), rows)


def _larger(one: ColumnElement[float], other: ColumnElement[float]) -> ColumnElement[float]:
    return case((one > other, one), else_=other)


async def end(tx: AsyncConnection, shares: Collection[Share], now: float) -> None:
    """These attempts have no devices of these nodes any more."""
    this = and_(
        gang_nodes.c.job_id == bindparam("of_job"),
        gang_nodes.c.attempt == bindparam("of_attempt"),
        gang_nodes.c.node == bindparam("of_node"),
        gang_nodes.c.until.is_(None),
    )
    rows = [{"of_job": job, "of_attempt": attempt, "of_node": node} for job, attempt, node in sorted(shares)]
    if rows:
        await tx.execute(update(gang_nodes).where(this).values(until=now), rows)


async def end_with_attempts(tx: AsyncConnection, before: float) -> None:
    """End what was left open of attempts that ended before a time, because no dispatcher saw them go."""
    mine = and_(attempts.c.job_id == gang_nodes.c.job_id, attempts.c.number == gang_nodes.c.attempt)
    when = select(attempts.c.ended_at).where(mine).scalar_subquery()
    over = exists().where(mine, attempts.c.ended_at < before)
    await tx.execute(update(gang_nodes).where(gang_nodes.c.until.is_(None), over).values(until=when))


async def insert_changes(tx: AsyncConnection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Store changes (cluster, node, at, kind, host, message); of two of a node at one time the first stays."""
    if rows:
        await tx.execute(insert(tx, node_changes).on_conflict_do_nothing(), list(rows))


async def lost_hosts(tx: AsyncConnection, cluster: str, since: float) -> dict[str, float]:
    """Host → when a node of it was last lost, of those that were lost after a time."""
    mine = (node_changes.c.cluster == cluster, node_changes.c.kind == "lost", node_changes.c.at >= since)
    statement = select(node_changes.c.host, node_changes.c.at).where(*mine).order_by(node_changes.c.at)
    return {row.host: row.at for row in await tx.execute(statement)}


async def newest_change(tx: AsyncConnection, node: str) -> RowMapping | None:
    """The node's last change that is kept."""
    statement = select(node_changes).where(node_changes.c.node == node).order_by(node_changes.c.at.desc()).limit(1)
    return (await tx.execute(statement)).mappings().first()


async def remove_old(tx: AsyncConnection, before: float) -> None:
    """Delete changes before a time, and what ended before it."""
    await tx.execute(delete(node_changes).where(node_changes.c.at < before))
    await tx.execute(delete(gang_nodes).where(gang_nodes.c.until < before))


async def changes(
    tx: AsyncConnection, since: float, node: str | None, upto: tuple[float, str] | None, limit: int
) -> Sequence[RowMapping]:
    """Changes of nodes since a time, of one or all, the newest first, up to a time and node."""
    statement = select(node_changes).where(node_changes.c.at >= since)
    if node is not None:
        statement = statement.where(node_changes.c.node == node)
    if upto is not None:
        statement = statement.where(tuple_(node_changes.c.at, node_changes.c.node) <= tuple_(*upto))
    order = (node_changes.c.at.desc(), node_changes.c.node.desc())
    return (await tx.execute(statement.order_by(*order).limit(limit))).mappings().all()


def on_node(node: str, since: float, before: tuple[float, str, int] | None, limit: int) -> Select[*tuple[Any, ...]]:
    """Attempts that had devices of a node and ended there since a time, the last to be seen there first.

    A dispatcher that was away sees only later that a gang has gone: none was on the node (`until`) for longer than its attempt took.
    """
    key = (gang_nodes.c.until, gang_nodes.c.job_id, gang_nodes.c.attempt)
    until = case((attempts.c.ended_at < gang_nodes.c.until, attempts.c.ended_at), else_=gang_nodes.c.until)
    statement = (
        select(
            *(gang_nodes.c[name] for name in ("job_id", "cpu", "gpu", "since")),
            until.label("until"),
            gang_nodes.c.attempt.label("number"),
            gang_nodes.c.until.label("ended_at"),
            *(jobs.c[name] for name in ("name", "actor", "state")),
            *(attempts.c[name] for name in ("device", "outcome")),
        )
        .join(jobs, jobs.c.id == gang_nodes.c.job_id)
        .join(attempts, and_(attempts.c.job_id == gang_nodes.c.job_id, attempts.c.number == gang_nodes.c.attempt))
        .where(gang_nodes.c.node == node, gang_nodes.c.until >= since, until >= since)
    )
    if before is not None:
        statement = statement.where(tuple_(*key) < tuple_(*before))
    return statement.order_by(*(column.desc() for column in key)).limit(limit)
