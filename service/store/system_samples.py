"""SQL of the tables `system_samples` and `node_uses`: what jobs and nodes use, bounded by time.

A job keeps its newest hour by 5 s, its newest 12 hours by 2 minutes, and its newest 30 days by 30 minutes: at most 2,520 rows. Each
sample is added to one row of each width, so that a batch reads and writes a few rows, however long the job has run.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from sqlalchemy import and_, delete, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from ..blocking_calls import in_own_thread
from .dialect import insert
from .packing.metric_curve import Bucket
from .packing.system_bucket import Unpacking, merge, packed
from .system_tables import node_uses as nodes
from .system_tables import system_samples as samples

#: Seconds of a bucket → number of buckets that are kept.
KEPT: Final[Mapping[int, int]] = {5: 720, 120: 360, 1800: 1440}
#: Seconds for which the use of a node is kept without a new sample.
_NODE_KEPT_S: Final = 3600.0
#: Conditions that a statement may have.
_AT_ONCE: Final = 100

#: Unix seconds, and name → value.
Sample = tuple[float, Mapping[str, float]]
#: Width and number of a bucket.
Place = tuple[int, int]


async def append(tx: AsyncConnection, job_id: str, new: Sequence[Sample]) -> None:
    """Add samples. Call only with the job's row locked. Samples that are older than what is kept are left out."""
    if not new:
        return
    newest = await _newest(tx, job_id, max(ts for ts, _ in new))
    places = {place for ts, values in new if values for place in _places(ts, newest)}
    known = await _load(tx, job_id, places)
    # In a thread: for a thousand ranks it takes a fifth of a second, in which this process would renew no lease. In its own: a transaction
    # must not wait for threads that storage keeps.
    changed = await in_own_thread("samples", partial(_added, new, newest, known))
    rows = [
        {"job_id": job_id, "width": width, "bucket": bucket, "packed": content}
        for (width, bucket), content in changed.items()
    ]
    statement = insert(tx, samples)
    update = {"packed": statement.excluded["packed"]}
    if rows:
        keys = ["job_id", "width", "bucket"]
        await tx.execute(statement.on_conflict_do_update(index_elements=keys, set_=update), rows)
    old = [and_(samples.c.width == width, samples.c.bucket <= _last_dropped(width, newest)) for width in KEPT]
    await tx.execute(delete(samples).where(samples.c.job_id == job_id, or_(*old)))


def _last_dropped(width: int, newest: float) -> int:
    return int(newest // width) - KEPT[width]


async def _newest(tx: AsyncConnection, job_id: str, at_least: float) -> float:
    """The time of the newest sample, stored or of this time."""
    span = await span_of(tx, job_id)
    return max(at_least, span[1]) if span else at_least


def _places(ts: float, newest: float) -> Iterator[Place]:
    """The buckets of a sample, without those that are no longer kept."""
    for width in KEPT:
        place = int(ts // width)
        if place > _last_dropped(width, newest):
            yield width, place


def _added(new: Iterable[Sample], newest: float, known: Mapping[Place, bytes]) -> dict[Place, bytes]:
    """The buckets that change, packed again."""
    unpacking = Unpacking()
    found: dict[Place, dict[str, Bucket]] = {}
    for ts, values in new:
        added = {name: Bucket(1, value, value, value) for name, value in values.items()}
        for place in _places(ts, newest) if added else ():
            if place not in found:
                found[place] = unpacking.of(known[place]) if place in known else {}
            merge(found[place], added)
    return {place: packed(buckets) for place, buckets in found.items()}


async def _load(tx: AsyncConnection, job_id: str, places: Collection[Place]) -> dict[Place, bytes]:
    conditions = [and_(samples.c.width == width, samples.c.bucket == bucket) for width, bucket in sorted(places)]
    found = {}
    for at in range(0, len(conditions), _AT_ONCE):
        statement = select(samples).where(samples.c.job_id == job_id, or_(*conditions[at : at + _AT_ONCE]))
        for row in (await tx.execute(statement)).mappings():
            found[row["width"], row["bucket"]] = bytes(row["packed"])
    return found


async def span_of(tx: AsyncConnection, job_id: str) -> tuple[int, int] | None:
    """Unix seconds at which the first kept sample's bucket begins, and at which that of the newest does; None: there is none."""
    bounds = [await _bounds(tx, job_id, width) for width in (max(KEPT), min(KEPT))]
    first, last = bounds
    return None if first is None or last is None else (first[0], last[1])


async def _bounds(tx: AsyncConnection, job_id: str, width: int) -> tuple[int, int] | None:
    statement = select(func.min(samples.c.bucket), func.max(samples.c.bucket))
    low, high = (await tx.execute(statement.where(samples.c.job_id == job_id, samples.c.width == width))).one()
    return None if low is None else (low * width, high * width)


async def read(tx: AsyncConnection, job_id: str, width: int, since: float, until: float) -> list[tuple[int, bytes]]:
    """Bucket and packed samples from one time to another, oldest first."""
    statement = select(samples.c.bucket, samples.c.packed).where(
        samples.c.job_id == job_id,
        samples.c.width == width,
        samples.c.bucket.between(int(since // width), int(until // width)),
    )
    return [(int(row.bucket), bytes(row.packed)) for row in await tx.execute(statement.order_by(samples.c.bucket))]


async def put_nodes(tx: AsyncConnection, uses: Mapping[str, Mapping[str, float]], now: float) -> None:
    """Replace what these nodes use, and forget nodes without a new sample for an hour."""
    if not uses:
        return
    statement = insert(tx, nodes)
    changed = {name: statement.excluded[name] for name in ("at", "values")}
    rows = [{"node": node, "at": now, "values": dict(values)} for node, values in sorted(uses.items())]
    await tx.execute(statement.on_conflict_do_update(index_elements=["node"], set_=changed), rows)
    await tx.execute(delete(nodes).where(nodes.c.at < now - _NODE_KEPT_S))


async def of_nodes(tx: AsyncConnection, since: float) -> dict[str, dict[str, Any]]:
    """Node → its use, of those that were sampled after a time."""
    found = (await tx.execute(select(nodes).where(nodes.c.at >= since))).mappings()
    return {row["node"]: {"at": row["at"], **row["values"]} for row in found}
