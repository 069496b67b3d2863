"""Reads what the cluster and its nodes were used for: over time, by user, and what ran and changed."""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from ...workers.messages.system_metrics import GPU, NODE
from ..errors import InvalidCursor
from ..nodes import find_past, settings_of
from ..schemas.cluster import (
    ClusterUse,
    DeviceTime,
    DeviceTimes,
    DeviceUse,
    HolderUse,
    NodeChange,
    NodeChanges,
    NodeCurve,
    NodeCurves,
    PastAttempt,
    PastAttempts,
    TimeRange,
)
from ..settings import Settings
from ..store import attempts, cluster_samples, clusters, cordons, node_history, nodes
from ..store.engine import Store
from ..store.packing.metric_curve import Bucket
from ..store.packing.system_bucket import Unpacking
from .system import series_of

#: Range → seconds of a bucket: at most 337 of them.
WIDTHS: Final = {TimeRange.HOUR: 60, TimeRange.DAY: 300, TimeRange.WEEK: 1800}
_DEVICES: Final = ("all", "used", "free", "cordoned")
#: Metric of a node → unit, in the order of an answer.
_UNITS: Final = {**NODE, "devices/cpu/used": "CPU ranks", "devices/cuda/used": "GPUs"}
#: A cluster adds its sample of each minute within this time.
_LATE_S: Final = 120.0
#: Separates the parts of a name, and of a cursor.
_APART: Final = "/"
_TIME: Final = r"([0-9]{1,12}(?:\.[0-9]{1,9})?)"
_ATTEMPT: Final = re.compile(_TIME + r"/(job-[0-9a-z]{26})/([0-9]{1,9})")
_CHANGE: Final = re.compile(_TIME + r"/([^/\0]{1,80})/([a-z_]{1,16})")


async def use(store: Store, settings: Settings, span: TimeRange) -> ClusterUse:
    """What was in use of all clusters of this database."""
    now = time.time()
    since = now - span.seconds
    async with store.read() as tx:
        known = {settings.cluster, *await nodes.clusters(tx)}
        found = await cluster_samples.read(tx, known, cluster_samples.WHOLE, WIDTHS[span], since)
    return await asyncio.to_thread(_use, WIDTHS[span], found, now)


def _use(width: int, found: Sequence[tuple[int, bytes]], now: float) -> ClusterUse:
    unpacking = Unpacking()
    buckets: dict[int, dict[str, float]] = {}
    for place, content in _of_all_clusters(width, found, now):
        mine = buckets.setdefault(place, {})  # of several clusters the means are added up
        samples = unpacking.of(content)
        count = samples["nodes/alive"].count  # what a sample does not name was 0
        for name, bucket in samples.items():
            mine[name] = mine.get(name, 0.0) + bucket.total / count
    each = list(buckets.values())
    names = {name for one in each for name in one}
    kinds = sorted({name.split("/")[1] for name in names if name.startswith("devices/")}, reverse=True)
    holders = [name for name in names if name.startswith(("user/", "team/"))]
    most = {name: sum(one.get(name, 0.0) for one in each) for name in holders}
    return ClusterUse(
        width=width,
        starts=[place * width for place in buckets],
        nodes=[_count(one.get("nodes/alive", 0.0)) for one in each],
        cordoned=[_count(one.get("nodes/cordoned", 0.0)) for one in each],
        devices=[_device(kind, each) for kind in kinds],
        holders=[_holder(name, each) for name in sorted(holders, key=lambda one: (one[0] == "t", -most[one], one))],
    )


def _of_all_clusters(width: int, found: Sequence[tuple[int, bytes]], now: float) -> Sequence[tuple[int, bytes]]:
    """The samples without those of the newest bucket, while a cluster that the bucket before has may still add its sample."""
    clusters = Counter(place for place, _ in found)
    newest = max(clusters, default=0)
    if now - newest * width >= _LATE_S or clusters[newest] >= clusters[newest - 1]:
        return found
    return [(place, content) for place, content in found if place != newest]


def _device(kind: str, each: Sequence[dict[str, float]]) -> DeviceUse:
    columns = {part: [_known(one.get(f"devices/{kind}/{part}")) for one in each] for part in _DEVICES}
    return DeviceUse(kind=kind, **columns)


def _holder(name: str, each: Sequence[dict[str, float]]) -> HolderUse:
    by, kind, holder = name.split(_APART, 2)
    used = [_count(one.get(name, 0.0)) for one in each]
    return HolderUse.model_validate({"by": by, "kind": kind, "name": holder, "used": used})


def _known(value: float | None) -> float | None:
    return None if value is None else _count(value)


def _count(value: float) -> float:
    """A mean number of nodes or devices. Not rounded to some digits: one device of many thousands shows."""
    return round(value, 3)


async def node_use(store: Store, node: str, span: TimeRange) -> NodeCurves:
    """What a node (id, start of an id, or host) used. Raises NodeNotFound, AmbiguousNode."""
    width = WIDTHS[span]
    async with store.read() as tx:
        row = await find_past(tx, node)
        found = await cluster_samples.read(tx, {row.cluster}, row.id, width, time.time() - span.seconds)
    return await asyncio.to_thread(_curves, row.id, row.host, width, found)


def _curves(node: str, host: str, width: int, found: Sequence[tuple[int, bytes]]) -> NodeCurves:
    unpacking = Unpacking()
    each = [unpacking.of(content) for _, content in found]
    names = {name for one in each for name in one}
    units = {name: unit for name, unit in _UNITS.items() if name in names}
    of_gpus = sorted(name for name in names if name.partition(_APART)[0] in GPU and _APART in name)
    curves = [_curve(name, name, None, unit, each) for name, unit in units.items()]
    for metric in GPU:
        for name in (one for one in of_gpus if one.startswith(f"{metric}{_APART}")):
            curves.append(_curve(name, metric, name.partition(_APART)[2], GPU[metric], each))
    starts = [place * width for place, _ in found]
    return NodeCurves(node=node, host=host, width=width, starts=starts, curves=curves)


def _curve(stored: str, name: str, gpu: str | None, unit: str, each: Sequence[dict[str, Bucket]]) -> NodeCurve:
    return NodeCurve(name=name, unit=unit, gpu=gpu, **series_of([one.get(stored) for one in each]))


async def device_times(store: Store, span: TimeRange) -> DeviceTimes:
    """How much of the devices each user's jobs took, those that run included."""
    now = time.time()
    async with store.read() as tx:
        counted = attempts.device_time(now - span.seconds, now, await clusters.gone(tx))
        found = (await tx.execute(counted)).mappings().all()
    items = [
        DeviceTime(actor=row["actor"], device=row["device"], jobs=row["jobs"], device_s=round(row["seconds"], 1))
        for row in found
    ]
    return DeviceTimes.model_validate({"since": now - span.seconds, "until": now, "items": items})


async def past_attempts(
    store: Store,
    settings: Settings,
    span: TimeRange,
    *,
    node: str | None = None,
    after: str | None = None,
    limit: int = 100,
) -> PastAttempts:
    """Attempts that ended in the range, on a node (id, start of an id, or host) or on all, the last first.

    Raises NodeNotFound, AmbiguousNode, InvalidCursor.
    """
    since = time.time() - span.seconds
    place = None if after is None else _place(after)
    async with store.read() as tx:
        if node is None:
            found = (await tx.execute(attempts.ended(since, place, limit + 1))).mappings().all()
            items = [_past(row, row["devices"], since, row["started_at"], row["ended_at"]) for row in found[:limit]]
        else:
            there = await find_past(tx, node)
            found = (await tx.execute(node_history.on_node(there.id, since, place, limit + 1))).mappings().all()
            theirs = await settings_of(tx, settings, there.cluster)
            items = [_past(row, _share(row, theirs), since, row["since"], row["until"]) for row in found[:limit]]
    last = found[limit - 1] if len(found) > limit else None
    return PastAttempts(items=items, next=None if last is None else _cursor(last))


def _share(row: Any, settings: Settings) -> float:
    """Devices of the node: GPUs, or CPU ranks."""
    return float(row["gpu"] or row["cpu"] * settings.cpu_ranks_per_core)


def _past(row: Any, devices: float, since: float, began: float, ended: float) -> PastAttempt:
    return PastAttempt.model_validate(
        {name: row[name] for name in ("name", "actor", "state", "device", "outcome")}
        | {"job": row["job_id"], "attempt": row["number"], "devices": devices, "since": began, "until": ended}
        | {"device_s": round(devices * max(0.0, ended - max(began, since)), 1)}
    )


def _cursor(row: Any) -> str:
    return _APART.join((repr(float(row["ended_at"])), row["job_id"], str(row["number"])))


def _place(after: str) -> tuple[float, str, int]:
    at, job, number = _parts(_ATTEMPT, after)
    return float(at), job, int(number)


def _parts(form: re.Pattern[str], after: str) -> tuple[str, ...]:
    found = form.fullmatch(after)
    if found is None:
        remedy = "Use `next` of the page before."
        raise InvalidCursor(f"{after[:80]!r} is not a cursor.", field="after", remedy=remedy)
    return found.groups()


async def changes(
    store: Store, span: TimeRange, *, node: str | None = None, after: str | None = None, limit: int = 100
) -> NodeChanges:
    """Nodes that joined, were lost or returned, and cordons, newest first. Raises NodeNotFound, AmbiguousNode, InvalidCursor."""
    now = time.time()
    since = now - span.seconds
    place = None if after is None else _change_place(after)
    async with store.read() as tx:
        there = None if node is None else (await find_past(tx, node)).id
        upto = None if place is None else place[:2]
        found = [dict(row) for row in await node_history.changes(tx, since, there, upto, limit + 2)]
        found += [dict(row) for row in await cordons.changes(tx, (since, now), there, upto, limit + 2)]
        hosts = {row["id"]: row["host"] for row in await nodes.all_nodes(tx)}
    found = sorted((row for row in found if place is None or _key(row) < place), key=_key, reverse=True)
    items = [NodeChange.model_validate({"host": hosts.get(row["node"], ""), **row}) for row in found[:limit]]
    return NodeChanges(items=items, next=_APART.join(map(str, _key(found[limit - 1]))) if len(found) > limit else None)


def _key(row: dict[str, Any]) -> tuple[float, str, str]:
    return float(row["at"]), row["node"], row["kind"]


def _change_place(after: str) -> tuple[float, str, str]:
    at, node, kind = _parts(_CHANGE, after)
    return float(at), node, kind
