"""Deletes jobs that have ended, and restores them. A deleted job is hidden; a dispatcher removes it later (`dispatch/retention.py`)."""

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ..errors import JobInUse, JobNotEnded, JobPinned
from ..model_errors import JobInModels
from ..queries.jobs import deleted, job_of, missing
from ..schemas.job import Job
from ..states import FINAL
from ..store import jobs as rows
from ..store import models, removals
from ..store.engine import Store


async def delete(store: Store, job_id: str, actor: str) -> Job:
    """Hide an ended job, which is removed later. Harmless if repeated. Raises JobNotFound, JobNotEnded, JobPinned, JobInUse,
    JobInModels."""
    async with store.write() as tx:
        row = await rows.lock(tx, job_id)
        if row is None:
            raise missing(job_id)
        if row["deleted_at"] is None:
            await _refuse_kept(tx, row)
            await removals.mark(tx, job_id, actor)
        return await _stored(tx, job_id)


async def undelete(store: Store, job_id: str) -> Job:
    """Restore a deleted job. Harmless if repeated. Raises JobNotFound, and JobDeleted if its removal has begun."""
    async with store.write() as tx:
        row = await rows.lock(tx, job_id)
        if row is None:
            raise missing(job_id)
        if row["removing"]:
            raise deleted(row)
        await rows.set_columns(tx, row["id"], {"deleted_at": None, "deleted_by": None})
        return await _stored(tx, row["id"])


async def _refuse_kept(tx: AsyncConnection, row: RowMapping) -> None:
    if row["state"] not in FINAL:
        raise JobNotEnded(f"{row['id']} is {row['state']}.", remedy="Wait for its end, or cancel it first.")
    if row["pinned"]:
        remedy = f"Unpin it first: shardyard edit {row['id']} --unpin"
        raise JobPinned(f"{row['id']} is pinned.", field="pinned", remedy=remedy)
    user = await removals.living_user(tx, row["id"])
    if user is not None:
        raise JobInUse(f"{user} continues from a checkpoint of {row['id']}.", remedy=f"Wait for the end of {user}.")
    version = await models.of_job(tx, row["id"])
    if version is not None:
        name, number = version["model"], version["number"]
        remedy = f"Delete the version first: shardyard models {name} --delete {number}"
        raise JobInModels(f"The model version {name}@{number} comes from {row['id']}.", remedy=remedy)


async def _stored(tx: AsyncConnection, job_id: str) -> Job:
    row = await rows.by_id(tx, job_id)
    assert row is not None  # it is locked
    return job_of(row)
