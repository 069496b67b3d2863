"""Removes the oldest log lines and traces of ended jobs, where a job has more than its spec says, or all jobs more than the settings.

Each transaction removes or counts a bounded number of rows, and sums what is stored once more under the lock of the job's row. So a
sweep that dies leaves true sizes, and of two dispatchers that sweep at once each finds what the other removed.
"""

import logging
from functools import partial
from typing import Final

from ..settings import Settings
from ..store import size_bounds
from ..store.engine import Store
from ..store.size_bounds import Kind
from .batches import JOBS, job_ids, repeat

log = logging.getLogger(__name__)

#: Log lines that are counted in one transaction.
LINES: Final = 2000
_GIB: Final = 1 << 30


async def fit(store: Store, settings: Settings) -> None:
    """Hold each job to its own bounds, then all jobs together to those of the settings."""
    await _count_lines(store, every=settings.keep_logs_gib > 0)
    bounds: dict[Kind, float] = {"logs": settings.keep_logs_gib, "traces": settings.keep_traces_gib}
    for kind, gib in bounds.items():
        await _fit_jobs(store, kind)
        if gib > 0:
            await _fit_all(store, kind, gib)


async def _count_lines(store: Store, *, every: bool) -> None:
    """Count lines that an earlier version stored: those of every job, or of jobs with a bound of their own."""
    async for job_id in job_ids(store, partial(size_bounds.uncounted, every=every)):
        await repeat(store, partial(size_bounds.count_some, job_id=job_id, limit=LINES))


async def _fit_jobs(store: Store, kind: Kind) -> None:
    async for job_id in job_ids(store, partial(size_bounds.oversized, kind=kind)):
        await _shrink(store, kind, job_id, None)


async def _fit_all(store: Store, kind: Kind, gib: float) -> None:
    """Jobs that ended first lose their records first. Running and pinned jobs count and keep theirs, but leave the others half of it."""
    bound, before = int(gib * _GIB), None
    while True:
        async with store.read() as tx:
            total = await size_bounds.stored(tx, kind)
            kept = total - await size_bounds.removable(tx, kind) if total > bound else 0
            most = max(bound, kept + bound // 2)
            found = await size_bounds.oldest(tx, kind, JOBS) if total > most else ()
        if not found or total == before:
            break
        before, excess = total, total - most
        for row in found:
            if excess <= 0:
                break
            await _shrink(store, kind, row["id"], most)
            excess -= row["bytes"]
    if most > bound:
        what = f"SHARDYARD_KEEP_{kind.upper()}_GIB is {gib:g}"
        log.warning(
            "%s, and the %s of running and pinned jobs take %.2f GiB; those of other jobs are held to half of the bound. "
            "Raise it, or unpin jobs.",
            what,
            kind,
            kept / _GIB,
        )


async def _shrink(store: Store, kind: Kind, job_id: str, most: int | None) -> None:
    await repeat(store, partial(size_bounds.shrink, kind=kind, job_id=job_id, most=most))
