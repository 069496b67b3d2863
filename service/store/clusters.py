"""SQL of the table `clusters`: which dispatcher looked at a cluster last. A name is one cluster's as long as somebody looks at it."""

from sqlalchemy import delete, select
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from .dialect import insert, unix_now
from .tables import clusters


async def put(tx: AsyncConnection, name: str, owner: str, seconds: float) -> None:
    """This dispatcher has looked at it, which counts for so long."""
    values = {"owner": owner, "fresh_until": unix_now(tx) + seconds}
    statement = insert(tx, clusters).values(name=name, **values)
    await tx.execute(statement.on_conflict_do_update(index_elements=["name"], set_=values))


async def fresh(tx: AsyncConnection) -> dict[str, str]:
    """Name → the dispatcher that looked last, of the clusters that somebody looks at."""
    statement = select(clusters.c.name, clusters.c.owner).where(clusters.c.fresh_until > unix_now(tx))
    return {row.name: row.owner for row in await tx.execute(statement.order_by(clusters.c.name))}


async def locked(tx: AsyncConnection, name: str) -> RowMapping | None:
    """The row, locked until the transaction's end."""
    return (await tx.execute(select(clusters).where(clusters.c.name == name).with_for_update())).mappings().first()


async def leave(tx: AsyncConnection, owner: str) -> None:
    """A dispatcher ends in order: where it looked last, nobody need wait for it."""
    await tx.execute(delete(clusters).where(clusters.c.owner == owner))
