"""SQL of the table `nodes`: the cluster's nodes as a dispatcher last saw them."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import delete, func, select
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ..ids import CLUSTER
from .cluster_tables import nodes
from .dialect import insert

#: A row of `nodes`.
Row = Mapping[str, Any] | RowMapping


async def replace(tx: AsyncConnection, rows: Sequence[Row], cluster: str = CLUSTER, stored: Sequence[Row] = ()) -> None:
    """Replace all nodes of one cluster: those not in `rows` are deleted. Rows that are in `stored` as they are are not written."""
    gone = nodes.c.id.not_in([row["id"] for row in rows])
    await tx.execute(delete(nodes).where(nodes.c.cluster == cluster, gone))
    known = {row["id"]: dict(row) for row in stored}
    changed_rows = [row for row in ({**row, "cluster": cluster} for row in rows) if row != known.get(row["id"])]
    if not changed_rows:
        return
    statement = insert(tx, nodes)
    changed = {column.name: statement.excluded[column.name] for column in nodes.c if not column.primary_key}
    await tx.execute(statement.on_conflict_do_update(index_elements=["cluster", "id"], set_=changed), changed_rows)


async def all_nodes(tx: AsyncConnection, cluster: str | None = None) -> Sequence[RowMapping]:
    """The nodes of one cluster, or of all. Of one that several clusters have the row that was seen last is first."""
    statement = select(nodes).order_by(nodes.c.host, nodes.c.id, nodes.c.seen_at.desc())
    if cluster is not None:
        statement = statement.where(nodes.c.cluster == cluster)
    return (await tx.execute(statement)).mappings().all()


async def seen(tx: AsyncConnection) -> Sequence[RowMapping]:
    """Of each cluster's living and lost nodes (`alive`) their `count`, and when one of them was seen `last`."""
    last, count = func.max(nodes.c.seen_at).label("last"), func.count().label("count")
    statement = select(nodes.c.cluster, nodes.c.alive, count, last).group_by(nodes.c.cluster, nodes.c.alive)
    return (await tx.execute(statement)).mappings().all()


async def clusters(tx: AsyncConnection) -> set[str]:
    """The clusters that have nodes."""
    return set((await tx.execute(select(nodes.c.cluster).distinct())).scalars())
