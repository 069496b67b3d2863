"""SQL of the table `capacities`: a cluster's capacity with all its nodes."""

from collections.abc import Mapping, Sequence

from sqlalchemy import select
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from .cluster_tables import capacities
from .dialect import insert


async def put(
    tx: AsyncConnection, cluster: str, device: str, nodes: Mapping[str, Sequence[int]], configured: bool
) -> None:
    """`nodes`: image → CPUs or GPUs of each node."""
    values = {"nodes": dict(nodes), "configured": configured}
    statement = insert(tx, capacities).values(cluster=cluster, device=device, **values)
    await tx.execute(statement.on_conflict_do_update(index_elements=["cluster", "device"], set_=values))


async def of(tx: AsyncConnection, cluster: str) -> Sequence[RowMapping]:
    return (await tx.execute(select(capacities).where(capacities.c.cluster == cluster))).mappings().all()


async def clusters(tx: AsyncConnection) -> set[str]:
    """The clusters that had a device."""
    found = await tx.execute(select(capacities.c.cluster, capacities.c.nodes))
    return {row.cluster for row in found if row.nodes}
