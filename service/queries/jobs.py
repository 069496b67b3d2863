"""Reads jobs: one by id or name, and pages of a list."""

import time
from collections.abc import Collection, Sequence
from dataclasses import asdict, replace
from typing import Final

from pydantic import ValidationError
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ...strategies.layout import Layout
from ...workers.certificate.references import Extra, extra_of
from ...workers.messages.event import FilesEvent, read
from ..errors import JobDeleted, JobNotFound
from ..layout_choice import layout_choice
from ..schemas.certificate import JobCertificate
from ..schemas.cursor import Cursor
from ..schemas.job import Budget, Budgets, Job, JobFiles, Jobs, Progress
from ..schemas.job_order import BY_NUMBER, Sort
from ..states import HOLDING, State
from ..store import attempts, certificates, clusters, events, numbered_jobs
from ..store import jobs as rows
from ..store.engine import Store
from ..store.jobs import Filter
from ..store.numbered_jobs import Numbering
from . import job_cursor, time_limit

_ALL: Final = Filter()
_NEWEST: Final = Sort()
#: States in which the newest sample is of the present attempt.
_SAMPLED: Final = HOLDING - {State.PLACING}


async def get_job(store: Store, id_or_name: str) -> Job:
    """The job of this id, or the newest of this name. Raises JobNotFound, JobDeleted."""
    async with store.read() as tx:
        row = await existing(tx, id_or_name)
        found = await events.newest(tx, row["id"], FilesEvent.kind) if row["spec"].get("files") else None
        proof = await certificates.summary(tx, row["id"])
        limit = await time_limit.of_job(tx, row)
        spent = await attempts.device_seconds(tx, [row["id"]], time.time())
    job = job_of(row).model_copy(update={"time_limit": limit, "device_s": spent.get(row["id"])})
    if proof is not None:
        job = job.model_copy(update={"certificate": JobCertificate(**proof, extra=_extra(row))})
    if found is None:
        return job
    files = read(FilesEvent, found["data"]).files
    return job.model_copy(update={"files": [JobFiles(**asdict(one)) for one in files]})


def _extra(row: RowMapping) -> Extra | None:
    """What the one process of the job's certificate did besides: a certificate is of the job's own spec, so its layout says it."""
    try:
        return extra_of(Layout.model_validate(row["spec"]["train"].get("layout", {})))
    except ValidationError:  # an earlier version stored it
        return None


async def list_jobs(
    store: Store,
    wanted: Filter = _ALL,
    *,
    sort: Sort = _NEWEST,
    cursor: str | None = None,
    limit: int = 50,
) -> Jobs:
    """One page of the jobs that match the filter, in order. Raises InvalidCursor."""
    read = _by_number if sort.order in BY_NUMBER else _by_text
    texts = (wanted.name, wanted.text, *wanted.labels, *wanted.labels.values())
    if any("\0" in part for part in texts if part):
        return Jobs(items=[])
    async with store.read() as tx:
        found, following = await read(tx, wanted, sort, cursor, limit)
        spent = await attempts.device_seconds(tx, [row["id"] for row in found], time.time())
    items = [job_of(row).model_copy(update={"device_s": spent.get(row["id"])}) for row in found]
    return Jobs(items=items, next=following)


async def count(store: Store, states: Collection[State]) -> int:
    """The number of jobs in these states that are not deleted."""
    async with store.read() as tx:
        return await rows.count(tx, states)


async def _by_text(
    tx: AsyncConnection, wanted: Filter, sort: Sort, cursor: str | None, limit: int
) -> tuple[Sequence[RowMapping], str | None]:
    """The rows of a page, and the cursor of the next one."""
    place = None if cursor is None else job_cursor.place(cursor, sort)
    found = await rows.page(tx, wanted, place, limit + 1, sort)
    return found[:limit], job_cursor.of_row(found[limit - 1], sort) if len(found) > limit else None


async def _by_number(
    tx: AsyncConnection, wanted: Filter, sort: Sort, cursor: str | None, limit: int
) -> tuple[Sequence[RowMapping], str | None]:
    """The same of an order by a number, as of the time at which the first page was read."""
    now = time.time()
    numbering, place = (Numbering(sort, now), None) if cursor is None else job_cursor.numbered(cursor, sort, now)
    numbering = replace(numbering, gone=await clusters.gone(tx))
    found = await numbered_jobs.page(tx, wanted, numbering, place, limit + 1)
    by_id = await rows.by_ids(tx, [one.id for one in found[:limit]])
    following = job_cursor.of_number(found[limit - 1], numbering) if len(found) > limit else None
    return [by_id[one.id] for one in found[:limit] if one.id in by_id], following


async def find(tx: AsyncConnection, id_or_name: str) -> RowMapping | None:
    """The row of the job of this id, or of the newest of this name. Raises JobDeleted if only a deleted job has it."""
    if "\0" in id_or_name:
        return None
    row = await rows.by_id(tx, id_or_name) or await rows.newest_named(tx, id_or_name)
    row = row or await rows.newest_named(tx, id_or_name, deleted=True)
    if row is not None and row["deleted_at"] is not None:
        raise deleted(row)
    return row


async def existing(tx: AsyncConnection, id_or_name: str) -> RowMapping:
    """As `find`. Raises JobNotFound, JobDeleted."""
    row = await find(tx, id_or_name)
    if row is None:
        raise missing(id_or_name)
    return row


def missing(id_or_name: str) -> JobNotFound:
    return JobNotFound(f"There is no job {id_or_name[:80]!r}.", remedy="See `shardyard list` for the jobs that exist.")


def deleted(row: RowMapping, field: str | None = None) -> JobDeleted:
    """The error that says how to restore the job, as long as that is possible."""
    if row["removing"]:
        return JobDeleted(
            f"{row['id']} was deleted by {row['deleted_by']}, and is being removed.",
            field=field,
            remedy="It cannot be restored any more. See `shardyard list` for the jobs that exist.",
        )
    remedy = f"Restore it with `shardyard undelete {row['id']}` (POST /v1/jobs/{row['id']}/undelete)."
    return JobDeleted(f"{row['id']} was deleted by {row['deleted_by']}.", field=field, remedy=remedy)


def job_of(row: RowMapping) -> Job:
    """A row of `jobs` as the service returns it."""
    return Job(
        id=row["id"],
        name=row["name"],
        actor=row["actor"],
        state=row["state"],
        reason=row["reason"],
        message=row["message"],
        labels=row["labels"],
        notes=row["notes"],
        spec=row["spec"],
        layout=row["layout"],
        layout_choice=layout_choice(row["spec"]),
        batch=row["batch"],
        world_size=row["world_size"],
        device=row["device"],
        attempt=row["attempt"],
        restarts=row["restarts"],
        budgets=_budgets(row),
        retry_at=retry_at(row),
        created_at=row["created_at"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        progress=_progress(row),
        use=row["resource_use"] if row["state"] in _SAMPLED else None,
        summary=row["summary"],
        checkpoint=row["checkpoint"],
        parent=row["parent"],
        retry_of=row["retry_of"],
        retried_by=row["retried_by"],
        pinned=row["pinned"],
        deleted_at=row["deleted_at"],
        deleted_by=row["deleted_by"],
        cursor=cursor_of(row),
    )


def _budgets(row: RowMapping) -> Budgets:
    return Budgets(
        restarts=Budget(used=row["restarts"], limit=row["max_restarts"]),
        retries=Budget(used=row["retries"], limit=row["max_retries"]),
        repairs=Budget(used=row["repairs"], limit=row["spec"].get("policy", {}).get("max_repairs", 0)),
    )


def retry_at(row: RowMapping) -> float | None:
    """When a waiting job may be placed, in unix seconds; None if that is at once, or it does not wait."""
    waits = row["state"] == State.QUEUED and row["retry_at"] > time.time()
    return float(row["retry_at"]) if waits else None


def _progress(row: RowMapping) -> Progress | None:
    if row["step"] is None:
        return None
    return Progress(**{name: row[name] for name in Progress.model_fields})


def cursor_of(row: RowMapping) -> Cursor:
    """The end of the job's events, steps and log, as its row has them."""
    return Cursor(row["event_pos"], row["step_pos"], row["log_pos"])
