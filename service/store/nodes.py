"""SQL of the table `nodes`: the cluster's machines as a dispatcher last saw them."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from .dialect import insert
from .tables import nodes


async def replace(tx: AsyncConnection, rows: Sequence[Mapping[str, Any]]) -> None:
    """The whole picture at once: what is not in it is forgotten."""
    await tx.execute(delete(nodes).where(nodes.c.id.not_in([row["id"] for row in rows])))
    if not rows:
        return
    statement = insert(tx, nodes)
    changed = {column.name: statement.excluded[column.name] for column in nodes.c if column.name != "id"}
    await tx.execute(statement.on_conflict_do_update(index_elements=["id"], set_=changed), list(rows))


async def all_nodes(tx: AsyncConnection) -> Sequence[RowMapping]:
    return (await tx.execute(select(nodes).order_by(nodes.c.host, nodes.c.id))).mappings().all()
