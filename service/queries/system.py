"""Reads what a job's nodes and ranks use, over time."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from ...workers.messages.system_metrics import UNITS
from ..errors import InvalidCursor
from ..schemas.system import SystemCurve, SystemCurves, SystemMetric
from ..store import system_samples as rows
from ..store.engine import Store
from ..store.packing.metric_curve import Bucket
from ..store.packing.system_bucket import Unpacking, merge, names_of
from .jobs import existing

#: Nodes or ranks in one answer, and buckets of each: together about 300 kB of JSON.
MOST_CURVES: Final = 24
MOST_BUCKETS: Final = 360
_DIGITS: Final = 4


async def curves(
    store: Store,
    job: str,
    name: str,
    *,
    since: float | None = None,
    until: float | None = None,
    after: str | None = None,
) -> SystemCurves:
    """One metric, of `UNITS`, of a job (id or name) from `since` to `until` (unix seconds; None: from the first, to the newest sample).

    At most 24 nodes or ranks after the one named `after`. Raises JobNotFound, InvalidCursor.
    """
    if after is not None and name.startswith("rank/") and not after.isdecimal():
        raise InvalidCursor(f"{after[:80]!r} is no rank.", field="after", remedy="Use `next` of the page before.")
    async with store.read() as tx:
        job_id = (await existing(tx, job))["id"]
        span = await rows.span_of(tx, job_id)
        if span is None:
            return SystemCurves(name=name, unit=UNITS[name], width=min(rows.KEPT), starts=[], curves=[], metrics=[])
        first = span[0] if since is None else max(since, span[0])
        last = span[1] if until is None else min(until, span[1])
        width = width_of(first, last, span[1])
        found = await rows.read(tx, job_id, width, first, last)
    return await asyncio.to_thread(_answer, name, width, found, after)  # of a thousand ranks it takes a second


def width_of(first: float, last: float, newest: float) -> int:
    """Seconds of a bucket: the finest of those that are kept back to `first`, as long as they are not far more than an answer has."""
    for width, kept in rows.KEPT.items():
        if first >= newest - width * kept and (last - first) / width <= 2 * MOST_BUCKETS:
            return width
    return max(rows.KEPT)


def _answer(name: str, width: int, found: Sequence[tuple[int, bytes]], after: str | None) -> SystemCurves:
    by = 1
    while found and found[-1][0] // by - found[0][0] // by >= MOST_BUCKETS:
        by += 1
    kind, _, metric = name.partition("/")
    begin, end = f"{kind}/", f"/{metric}"

    def page(names: list[str]) -> list[str]:
        """Those of one bucket that this answer may have: the first after `after`, and one that says whether there are more."""
        mine = [full[len(begin) : -len(end)] for full in names if full.startswith(begin) and full.endswith(end)]
        mine = [one for one in mine if after is None or _order(one) > _order(after)]
        return [f"{begin}{one}{end}" for one in sorted(mine, key=_order)[: MOST_CURVES + 1]]

    unpacking = Unpacking(page)
    buckets: dict[int, dict[str, Bucket]] = {}
    for place, content in found:
        merge(buckets.setdefault(place // by, {}), unpacking.of(content))
    subjects = sorted({full[len(begin) : -len(end)] for one in buckets.values() for full in one}, key=_order)
    shown = subjects[:MOST_CURVES]
    return SystemCurves(
        name=name,
        unit=UNITS[name],
        width=width * by,
        starts=[place * width * by for place in buckets],
        curves=[_curve(kind, one, [each.get(f"{begin}{one}{end}") for each in buckets.values()]) for one in shown],
        next=shown[-1] if len(subjects) > len(shown) else None,
        metrics=_metrics(found),
    )


def _metrics(found: Sequence[tuple[int, bytes]]) -> list[SystemMetric]:
    """Those of the first, the middle and the last bucket."""
    some = {found[at][1] for at in (0, len(found) // 2, -1)} if found else set()
    have = {_metric_of(full) for content in some for full in names_of(content)}
    return [SystemMetric(name=one, unit=unit) for one, unit in UNITS.items() if one in have]


def _order(subject: str) -> tuple[int, str]:
    """Ranks by number, nodes by id."""
    return (int(subject) if subject.isdecimal() and len(subject) < 10 else 0, subject)


def _metric_of(full: str) -> str:
    kind, _, rest = full.partition("/")
    return f"{kind}/{rest.rpartition('/')[2]}"


def _curve(kind: str, subject: str, values: Sequence[Bucket | None]) -> SystemCurve:
    node, rank = (subject, None) if kind == "node" else (None, int(subject))
    return SystemCurve(node=node, rank=rank, **series_of(values))


def series_of(values: Sequence[Bucket | None]) -> dict[str, Any]:
    """The fields of a `Series`."""
    single = all(one is None or one.low == one.high for one in values)
    return {
        "mean": [None if one is None else short(one.total / one.count) for one in values],
        "low": None if single else [None if one is None else short(one.low) for one in values],
        "high": None if single else [None if one is None else short(one.high) for one in values],
        "last": next((short(one.total / one.count) for one in reversed(values) if one is not None), None),
    }


def short(value: float) -> float:
    """Rounded to four digits."""
    return float(f"{value:.{_DIGITS}g}")
