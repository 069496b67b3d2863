"""Profiles of ranks on request: stored as orders, delivered to the gang by its job's dispatcher, settled once, by the event that ends them.

A profile is of the attempt that runs when it is requested. If that attempt ends first, the profile fails. Its content is a file of the
job, as those that programs log, and counts in their limits.
"""

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from typing import Any, Final

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ...workers.messages.event import ArtifactsEvent, ProfileEvent
from ...workers.messages.profile_request import Kind
from ...workers.messages.profile_request import Profile as GangProfile
from ..jobs import artifacts
from ..jobs.transitions import Cause
from ..policies.limits import ArtifactLimits
from ..profile_errors import ProfileNotPossible, ProfileRankUnknown, TooManyProfiles
from ..schemas.profile import Profile, ProfileRequest, Profiles
from ..settings import Settings
from ..store import orders
from ..store.engine import Store
from ..store.profile_tables import profiles
from . import order_frame
from .order_frame import Delivery, OrderKind

#: The most profiles of a job that may be open, and the records that are kept when they are settled.
MOST_OPEN: Final = 8
KEPT: Final = 100


async def create(store: Store, job: str, request: ProfileRequest, key: str | None, actor: str) -> Profile:
    """Store the profile; the job's dispatcher sees it within `poll_s`. `job` is an id or a name, `key` an idempotency key.

    Raises JobNotFound, JobNotRunning, ProfileRankUnknown, ProfileNotPossible, TooManyProfiles, IdempotencyConflict; then nothing is stored.
    """
    async with store.write() as tx:
        _, row = await order_frame.create(tx, _KIND, job, request, key, actor)
    return _record(row)


def refuse_unknown_rank(job: RowMapping, rank: int) -> None:
    """Raises ProfileRankUnknown."""
    if rank >= job["world_size"]:
        remedy = f"Name one from 0 to {job['world_size'] - 1}."
        raise ProfileRankUnknown(f"{job['id']} has no rank {rank}.", field="rank", remedy=remedy)


def _refuse_kind(job: RowMapping, kind: Kind) -> None:
    """Raises ProfileNotPossible for what no process of the job can record of itself."""
    if kind == "memory" and job["device"] != "cuda":
        remedy = "Take operators, which has the allocations of CPUs, too."
        raise ProfileNotPossible(
            f"{job['id']} computes on CPUs, of which no memory is recorded.", field="kind", remedy=remedy
        )


async def _prepare(tx: AsyncConnection, job: RowMapping, request: ProfileRequest) -> dict[str, Any]:
    order_frame.refuse_unless_running(job, "only ranks of running jobs can be profiled")
    refuse_unknown_rank(job, request.rank)
    _refuse_kind(job, request.kind)
    open_ones = await orders.open_of(tx, profiles, job["id"])
    if len(open_ones) >= MOST_OPEN:
        message = f"{len(open_ones)} profiles of {job['id']} are being taken."
        raise TooManyProfiles(message, field="job", remedy="Repeat the request when some of them have ended.")
    return {"attempt": job["attempt"], "state": "open"}


async def deliveries(tx: AsyncConnection, settings: Settings, tokens: Collection[str]) -> list[Delivery]:
    """The open profiles of the gangs under these leases, oldest first."""
    return await order_frame.deliveries(tx, profiles, tokens, partial(_message, settings))


def _message(settings: Settings, row: RowMapping) -> GangProfile:
    storage = settings.artifacts(row["job_id"])
    return GangProfile(
        row["id"], row["kind"], row["rank"], row["seconds"], storage, settings.rules.artifacts.file_bytes
    )


async def settle(
    tx: AsyncConnection, job_id: str, event: ProfileEvent, ts: float, *, run: int, limits: ArtifactLimits
) -> ProfileEvent | None:
    """The gang's event as it is stored, or None if the profile was settled before. Call only with the job's row locked.

    Its file becomes one of the job's, of the program's run `run`. Without room for it in the limits, the profile fails.
    Raises ValueError for a file that no rank stores; then nothing is stored.
    """
    order = await orders.by_id(tx, profiles, job_id, event.id)
    if order is None or order["settled_at"] is not None:
        return None
    if event.file is not None:
        file = ArtifactsEvent(rank=order["rank"], generation=0, artifacts=(event.file,))
        rows = artifacts.rows_of(file, job_id=job_id, run=run, ts=ts)
        if await artifacts.record(tx, job_id, rows, limits) is not None:
            message = f"it was taken and is not kept: a job may have {limits.files:,} files and {limits.bytes:,} bytes"
            event = replace(event, file=None, message=message)
    outcome = {
        "state": "failed" if event.file is None else "done",
        "message": event.message,
        "file": None if event.file is None else event.file.name,
    }
    row = await orders.settle(tx, profiles, job_id, event.id, {"settled_at": ts, **outcome})
    return None if row is None else _event(row, event)


async def settle_all(tx: AsyncConnection, job: RowMapping, cause: Cause) -> None:
    """Settle the open profiles of an ended attempt as failed. Call only with the job's row locked."""
    outcome = {"state": "failed", "message": "the attempt ended before the rank was profiled"}
    await order_frame.settle_all(tx, profiles, job, cause, outcome, lambda row: _event(row, None))


def _event(row: RowMapping, reported: ProfileEvent | None) -> ProfileEvent:
    return ProfileEvent(
        id=row["id"],
        profile=row["kind"],
        rank=row["rank"],
        done=row["state"] == "done",
        message=row["message"],
        file=None if reported is None else reported.file,
        asked_by=row["actor"],
        asked_at=row["asked_at"],
    )


async def page(store: Store, job: str, *, before: str | None = None, limit: int = 20) -> Profiles:
    """Profiles of a job (id or name) below the id `before`, newest first. Raises JobNotFound, InvalidCursor."""
    async with store.read() as tx:
        _, rows, after = await order_frame.page(tx, _KIND, job, before, limit)
    return Profiles(items=[_record(row) for row in rows], next=after)


def _record(row: RowMapping) -> Profile:
    names = ("id", "attempt", "rank", "kind", "seconds", "state", "message", "file", "actor", "asked_at", "settled_at")
    return Profile(job=row["job_id"], **{name: row[name] for name in names})


_KIND: Final = OrderKind("profile", profiles, _prepare, keep_settled=KEPT - 1)
