"""SQL of the table `clusters`: the dispatcher that polled a cluster last. A fresh entry reserves the cluster's name."""

from collections.abc import Mapping
from typing import Final

from sqlalchemy import delete, exists, func, select, update
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ..states import HOLDING
from .cluster_tables import capacities, clusters, nodes
from .dialect import insert, unix_now
from .tables import jobs

#: Seconds without a look of its dispatcher after which a cluster is gone for good.
GONE_S: Final = 86_400.0


async def enter(tx: AsyncConnection, name: str, owner: str) -> None:
    """Add an entry that is not fresh, unless there is one: then `locked` has a row to lock."""
    statement = insert(tx, clusters).values(name=name, owner=owner, fresh_until=0.0)
    await tx.execute(statement.on_conflict_do_nothing(index_elements=["name"]))


async def put(
    tx: AsyncConnection, name: str, owner: str, seconds: float, limits: Mapping[str, int | None] | None = None
) -> None:
    """Record that this dispatcher has polled the cluster. The entry is fresh for `seconds`. `limits`: the columns that `limits` reads."""
    values = {"owner": owner, "fresh_until": unix_now(tx) + seconds, **(limits or {})}
    statement = insert(tx, clusters).values(name=name, **values)
    await tx.execute(statement.on_conflict_do_update(index_elements=["name"], set_=values))


async def limits(tx: AsyncConnection, name: str) -> RowMapping | None:
    """By which settings the cluster's devices are counted in ranks; None if no dispatcher has stored them."""
    stored = clusters.c.cpu_ranks_per_core.is_not(None)
    statement = select(clusters.c.max_ranks, clusters.c.cpu_ranks_per_core).where(clusters.c.name == name, stored)
    return (await tx.execute(statement)).mappings().first()


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
    """End the freshness of the entries of a dispatcher that ends in order, so that no other dispatcher waits until they expire."""
    fresh = clusters.c.fresh_until > unix_now(tx)
    await tx.execute(update(clusters).where(clusters.c.owner == owner, fresh).values(fresh_until=unix_now(tx)))


async def ages(tx: AsyncConnection) -> dict[str, float]:
    """Cluster → seconds since its entry was fresh or, without an entry, since its nodes were seen. Negative while it is fresh."""
    seen = select(nodes.c.cluster, unix_now(tx) - func.max(nodes.c.seen_at)).group_by(nodes.c.cluster)
    entries = select(clusters.c.name, unix_now(tx) - clusters.c.fresh_until)
    return {name: age for statement in (seen, entries) for name, age in await tx.execute(statement)}


async def gone(tx: AsyncConnection) -> dict[str, float]:
    """Cluster → when its entry was last fresh (unix seconds), of those that are gone for good."""
    statement = select(clusters.c.name, clusters.c.fresh_until).where(clusters.c.fresh_until < unix_now(tx) - GONE_S)
    return {row.name: float(row.fresh_until) for row in await tx.execute(statement)}


async def remove_old(tx: AsyncConnection, kept_s: float, but: str) -> None:
    """Delete all clusters older than `kept_s`, with their nodes and capacity. `but`: a cluster that stays.

    The entry stays as long as jobs are there: it says until when they had devices.
    """
    old = [name for name, age in (await ages(tx)).items() if age > kept_s and name != but]
    for column in (nodes.c.cluster, capacities.c.cluster):
        await tx.execute(delete(column.table).where(column.in_(old)))
    there = exists().where(jobs.c.cluster == clusters.c.name, jobs.c.state.in_(HOLDING))
    await tx.execute(delete(clusters).where(clusters.c.name.in_(old), ~there))
