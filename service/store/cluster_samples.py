"""SQL of the table `cluster_samples`: what clusters and their nodes used, bounded by time.

A sample a minute is added to one row of each width. So a cluster, and each of its nodes, has at most 816 rows: its newest two hours by
a minute, 26 hours by 5 minutes, and 8 days by 30 minutes.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final

from sqlalchemy import ColumnElement, and_, delete, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from ..blocking_calls import in_own_thread
from .cluster_tables import cluster_samples as samples
from .dialect import insert
from .packing.metric_curve import Bucket
from .packing.system_bucket import Unpacking, merge, packed

#: Seconds of a bucket → number of buckets that are kept.
KEPT: Final[Mapping[int, int]] = {60: 120, 300: 312, 1800: 384}
#: The name under which the whole cluster is stored, beside its nodes.
WHOLE: Final = ""
#: Nodes of one statement.
_AT_ONCE: Final = 200

#: Metric → value.
Use = Mapping[str, float]


async def is_recorded(tx: AsyncConnection, cluster: str, at: float) -> bool:
    """Whether the cluster has its sample of this minute (unix seconds)."""
    width = min(KEPT)
    same = (samples.c.width == width, samples.c.bucket == int(at // width))
    statement = select(samples.c.bucket).where(samples.c.cluster == cluster, samples.c.node == WHOLE, *same)
    return (await tx.execute(statement)).first() is not None


async def add(tx: AsyncConnection, cluster: str, at: float, uses: Mapping[str, Use]) -> None:
    """Add a sample of each of these nodes (`WHOLE`: of the cluster), all of one time in unix seconds."""
    names = sorted(uses)
    for start in range(0, len(names), _AT_ONCE):
        some = names[start : start + _AT_ONCE]
        known = await _known(tx, cluster, some, at)
        rows = await in_own_thread("samples", partial(_added, {node: uses[node] for node in some}, at, known))
        statement = insert(tx, samples)
        update = {"packed": statement.excluded["packed"]}
        keys = ["cluster", "node", "width", "bucket"]
        await tx.execute(
            statement.on_conflict_do_update(index_elements=keys, set_=update),
            [{"cluster": cluster, "node": node, **row} for node, row in rows],
        )


async def _known(tx: AsyncConnection, cluster: str, some: Collection[str], at: float) -> dict[tuple[str, int], bytes]:
    statement = select(samples.c.node, samples.c.width, samples.c.packed)
    here = or_(*(_is(width, at) for width in KEPT))
    found = await tx.execute(statement.where(samples.c.cluster == cluster, samples.c.node.in_(some), here))
    return {(row.node, row.width): bytes(row.packed) for row in found}


def _is(width: int, at: float) -> ColumnElement[bool]:
    return and_(samples.c.width == width, samples.c.bucket == int(at // width))


def _added(
    uses: Mapping[str, Use], at: float, known: Mapping[tuple[str, int], bytes]
) -> list[tuple[str, dict[str, object]]]:
    """Each node's rows with its sample."""
    unpacking, made = Unpacking(), []
    for node, use in uses.items():
        added = {name: Bucket(1, value, value, value) for name, value in use.items()}
        for width in KEPT:
            before = known.get((node, width))
            buckets = {} if before is None else unpacking.of(before)
            merge(buckets, added)
            made.append((node, {"width": width, "bucket": int(at // width), "packed": packed(buckets)}))
    return made


async def remove_old(tx: AsyncConnection, now: float) -> None:
    """Delete the buckets of all clusters that are no longer kept."""
    old = [and_(samples.c.width == width, samples.c.bucket <= int(now // width) - kept) for width, kept in KEPT.items()]
    await tx.execute(delete(samples).where(or_(*old)))


async def read(
    tx: AsyncConnection, clusters: Collection[str], node: str, width: int, since: float
) -> Sequence[tuple[int, bytes]]:
    """Bucket and packed samples of a node, or of these clusters (`WHOLE`), from a time on, oldest first."""
    statement = select(samples.c.bucket, samples.c.packed).where(
        samples.c.cluster.in_(clusters),
        samples.c.node == node,
        samples.c.width == width,
        samples.c.bucket >= int(since // width),
    )
    return [(int(row.bucket), bytes(row.packed)) for row in await tx.execute(statement.order_by(samples.c.bucket))]
