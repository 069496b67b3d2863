"""Reads what programs logged: the names of a job's metrics, and curves of some of them."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy.engine import RowMapping

from ..schemas.logged_metric import (
    JobLoggedValues,
    LoggedCurve,
    LoggedCurves,
    LoggedMetric,
    LoggedMetrics,
    LoggedName,
    LoggedNames,
    LoggedValue,
    LoggedValues,
)
from ..store import logged_metrics as rows
from ..store.engine import Store
from ..store.packing.metric_curve import Bucket, coarser
from .jobs import existing

#: Metrics in one answer of curves, and buckets of each: together below 300 kB of JSON.
MOST_CURVES: Final = 24
MOST_BUCKETS: Final = 800
#: Jobs in one answer of names and newest values, and metrics of each: together below 300 kB of JSON.
MOST_JOBS: Final = 200
MOST_VALUES: Final = 16
_DIGITS: Final = 6


async def page(store: Store, job: str, *, text: str | None, after: str | None, limit: int) -> LoggedMetrics:
    """One page of a job's metrics (id or name). Raises JobNotFound."""
    if any("\0" in part for part in (text, after) if part):
        return LoggedMetrics(items=[])
    async with store.read() as tx:
        job_id = (await existing(tx, job))["id"]
        found = await rows.page(tx, job_id, text, after, limit + 1)
    items = [LoggedMetric(name=row["name"], width=row["width"], **_numbers(row)) for row in found[:limit]]
    return LoggedMetrics(items=items, next=items[-1].name if len(found) > limit else None)


async def names(store: Store, job_ids: Sequence[str], *, text: str | None, limit: int) -> LoggedNames:
    """The names that any of those jobs (ids) logged, those of the most jobs first."""
    known = [job_id for job_id in job_ids if "\0" not in job_id]
    if "\0" in (text or ""):
        return LoggedNames(items=[])
    async with store.read() as tx:
        found = await rows.names_of(tx, known, text, limit + 1)
    items = [LoggedName(name=row["name"], jobs=row["jobs"], last_step=row["last_step"]) for row in found[:limit]]
    return LoggedNames(items=items, more=len(found) > limit)


async def newest(store: Store, job_ids: Sequence[str], wanted: Sequence[str]) -> LoggedValues:
    """The newest values of these metrics, and their extremes, by job (id) in the order of the ids. Unknown jobs are left out."""
    ids, known = ([part for part in dict.fromkeys(parts) if "\0" not in part] for parts in (job_ids, wanted))
    async with store.read() as tx:
        found = await rows.newest_of(tx, ids, known)
    by_job: dict[str, dict[str, LoggedValue]] = {}
    for row in found:
        by_job.setdefault(row["job_id"], {})[row["name"]] = LoggedValue(**_numbers(row))
    return LoggedValues(items=[JobLoggedValues(job=job, values=by_job[job]) for job in ids if job in by_job])


async def curves(
    store: Store, job: str, names: Sequence[str], *, low: int = 0, high: int | None = None, buckets: int = 400
) -> LoggedCurves:
    """Curves of steps `low` to `high` (None: to the newest) of a job (id or name). Raises JobNotFound."""
    known = [name for name in dict.fromkeys(names) if "\0" not in name]
    async with store.read() as tx:
        job_id = (await existing(tx, job))["id"]
        found = await rows.read(tx, job_id, known, low, high)
    return LoggedCurves(series={name: _curve(*found[name], most=buckets) for name in known if name in found})


def _curve(row: RowMapping, buckets: Mapping[int, Bucket], most: int) -> LoggedCurve:
    by = 1
    while buckets and max(buckets) // by - min(buckets) // by + 1 > most:
        by *= 2
    shown = coarser(buckets, by) if by > 1 else buckets
    single = all(one.low == one.high for one in shown.values())
    return LoggedCurve(
        width=row["width"] * by,
        starts=[place * row["width"] * by for place in shown],
        mean=[_short(one.total / one.count) for one in shown.values()],
        low=None if single else [_short(one.low) for one in shown.values()],
        high=None if single else [_short(one.high) for one in shown.values()],
        last=None if row["last"] is None else _short(row["last"]),
        last_step=row["last_step"],
    )


def _numbers(row: RowMapping) -> dict[str, Any]:
    return {name: row[name] for name in LoggedValue.model_fields}


def _short(value: float) -> float | None:
    """Six digits. A mean whose sum has overflown is left out."""
    return float(f"{value:.{_DIGITS}g}") if abs(value) != float("inf") else None
