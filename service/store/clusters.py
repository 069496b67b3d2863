"""SQL of the table `clusters`: the dispatcher that polled a cluster last. A fresh entry reserves the cluster's name."""

from sqlalchemy import delete, select
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from .cluster_tables import clusters
from .dialect import insert, unix_now


async def enter(tx: AsyncConnection, name: str, owner: str) -> None:
    """Add an entry that is not fresh, unless there is one: then `locked` has a row to lock."""
    statement = insert(tx, clusters).values(name=name, owner=owner, fresh_until=0.0)
    await tx.execute(statement.on_conflict_do_nothing(index_elements=["name"]))


async def put(tx: AsyncConnection, name: str, owner: str, seconds: float) -> None:
    """Record that this dispatcher has polled the cluster. The entry is fresh for `seconds`."""
    values = {"owner": owner, "fresh_until": unix_now(tx) + seconds}
    statement = insert(tx, clusters).values(name=name, **values)
    await tx.execute(statement.on_conflict_do_update(index_elements=["name"], set_=values))


async def fresh(tx: AsyncConnection) -> dict[str, str]:
    """Name → the dispatcher that polled the cluster last, for the clusters whose entry is fresh."""
    statement = select(clusters.c.name, clusters.c.owner).where(clusters.c.fresh_until > unix_now(tx))
    return {row.name: row.owner for row in await tx.execute(statement.order_by(clusters.c.name))}


async def polled_by_another(tx: AsyncConnection, name: str, owner: str, within_s: float, seconds: float) -> bool:
    """Whether another dispatcher has polled the cluster in the last `within_s`. `seconds`: for which its entry was fresh then."""
    recently = clusters.c.fresh_until - seconds > unix_now(tx) - within_s
    statement = select(clusters.c.name).where(clusters.c.name == name, clusters.c.owner != owner, recently)
    return (await tx.execute(statement)).first() is not None


async def locked(tx: AsyncConnection, name: str) -> RowMapping | None:
    """The row, locked until the transaction's end."""
    return (await tx.execute(select(clusters).where(clusters.c.name == name).with_for_update())).mappings().first()


async def leave(tx: AsyncConnection, owner: str) -> None:
    """Delete the entries of a dispatcher that ends in order, so that no other dispatcher waits until they expire."""
    await tx.execute(delete(clusters).where(clusters.c.owner == owner))
