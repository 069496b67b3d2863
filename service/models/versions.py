"""Creates and deletes versions of models. A version keeps its checkpoint: it pins it, and its job is not deleted before the version.

The source is stored in the transaction that reads it, with the job's row locked. The pin itself is made by the cluster, which reaches the
storage. If a save removes the checkpoint before that, the version's state is `deleted`.
"""

import math
import time
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ..errors import ArtifactNotFound, CheckpointNotFound, IdempotencyConflict
from ..model_errors import VersionAliased
from ..orders import checkpoint_operations
from ..orders.checkpoint_operations import OperationRequest
from ..queries import checkpoint_catalogue, models
from ..queries.jobs import deleted, existing, missing
from ..schemas.model import Model, ModelVersion, VersionRequest
from ..store import artifacts, checkpoints, events, jobs, logged_metrics, steps
from ..store import models as rows
from ..store.engine import Store

#: Logged metrics that a version copies, in order of their names.
MOST_METRICS: Final = 200


@dataclass(frozen=True)
class Submission:
    """Who asks, under which idempotency key, with which digest of model and body."""

    key: str | None
    body_hash: str
    actor: str


async def create(store: Store, model: str, wanted: VersionRequest, submission: Submission) -> tuple[ModelVersion, bool]:
    """Store the next version of a model, which is created with its first one. False beside it: the same key made it before.

    Raises JobNotFound, JobDeleted, CheckpointNotFound, CheckpointDeleted, CheckpointCorrupt, ArtifactNotFound, PinUnderway,
    TooManyOperations, IdempotencyConflict; then nothing is stored.
    """
    now = time.time()
    async with store.write() as tx:
        job = await jobs.lock(tx, (await existing(tx, wanted.job))["id"])
        if job is None:
            raise missing(wanted.job)
        known = None if submission.key is None else await rows.by_key(tx, submission.key)
        if known is not None:
            return await _replayed(tx, known, submission), False
        if job["deleted_at"] is not None:  # since it was read: a removal would not see this version
            raise deleted(job, "job")
        source = await (_file if wanted.artifact is not None else _checkpoint)(tx, job, wanted, submission.actor)
        values = {"source": job["id"], "trained": "train" in job["spec"], "notes": wanted.notes, "created_at": now}
        values |= {"metrics": await _metrics(tx, job["id"], source["step"]), **source, "actor": submission.actor}
        await rows.create(tx, model, submission.actor, now)
        await rows.lock(tx, model)
        row = await rows.add_version(
            tx, model, values | {"idempotency_key": submission.key, "body_hash": submission.body_hash}
        )
        if row is None:  # of another job, whose row is another lock
            raise _conflict("This idempotency key belongs to a version that was created at the same time.")
        await _note(tx, model, "version_created", row["number"], submission.actor)
        (made,) = await models.described(tx, [row])
    return made, True


async def delete(store: Store, model: str, number: int, actor: str) -> Model:
    """Delete a version; its checkpoint stays, and stays pinned. Harmless if repeated. Raises ModelNotFound, VersionAliased."""
    async with store.write() as tx:
        await models.existing(tx, model)
        await rows.lock(tx, model)
        if await rows.version(tx, model, number) is not None:
            named = [row["alias"] for row in await rows.aliases_of(tx, [model]) if row["number"] == number]
            if named:
                remedy = (
                    f"Set them to another version, or remove them: shardyard models {model} --remove-alias {named[0]}"
                )
                message = f"{model}@{number} is named by {', '.join(named)}."
                raise VersionAliased(message, field="version", remedy=remedy)
            await rows.delete_version(tx, model, number, time.time())
            await _note(tx, model, "version_deleted", number, actor)
    return await models.get_model(store, model)


async def _replayed(tx: AsyncConnection, row: RowMapping, submission: Submission) -> ModelVersion:
    if row["body_hash"] != submission.body_hash:
        raise _conflict(
            f"This idempotency key belongs to {row['model']}@{row['number']}, which was created from another body."
        )
    (found,) = await models.described(tx, [row])
    return found


def _conflict(message: str) -> IdempotencyConflict:
    return IdempotencyConflict(message, field="Idempotency-Key", remedy="Use a new key for a new version.")


async def _checkpoint(tx: AsyncConnection, job: RowMapping, wanted: VersionRequest, actor: str) -> dict[str, Any]:
    """The columns of a version that is a checkpoint, which is to be pinned."""
    step = (
        wanted.step
        if wanted.step is not None
        else await checkpoints.newest(tx, job["id"], checkpoint_catalogue.PRESENT)
    )
    event = None if step is None else await events.of_step(tx, job["id"], "checkpoint", step)
    if step is None or event is None:
        of_step = "" if step is None else f" of step {step}"
        remedy = f"List the checkpoints: shardyard checkpoints {job['id']}"
        raise CheckpointNotFound(f"{job['id']} has no checkpoint{of_step}.", field="step", remedy=remedy)
    await checkpoint_catalogue.refuse_unusable(tx, job["id"], step, "step")
    await checkpoint_operations.refuse_other_pin(tx, job["id"], str(event["data"]["path"]), "pin", "step")
    # Also if it is pinned: the step may have been saved again since then, and the pin's checksum is that of the first save.
    request = OperationRequest("pin", int(event["position"]))
    await checkpoint_operations.create_in(tx, job["id"], request, None, actor)
    known = event["data"].get("digest")  # gangs of older versions, and saves from memory, report none
    return {"step": step, "artifact": None, "path": str(event["data"]["path"]), "digest": known}


async def _file(tx: AsyncConnection, job: RowMapping, wanted: VersionRequest, _: str) -> dict[str, Any]:
    """The columns of a version that is a logged file."""
    row = await artifacts.get(tx, job["id"], str(wanted.artifact), wanted.step)
    if row is None:
        remedy = f"List the files: shardyard artifacts {job['id']}"
        message = f"{job['id']} has no file {str(wanted.artifact)[:80]!r}."
        raise ArtifactNotFound(message, field="artifact", remedy=remedy)
    return {"step": row["step"], "artifact": row["name"], "path": None, "digest": row["sha256"]}


async def _metrics(tx: AsyncConnection, job_id: str, step: int) -> dict[str, float | None]:
    """The newest values that the job logged, and those of the step if Shardyard's loop trained it."""
    logged = await logged_metrics.page(tx, job_id, None, None, MOST_METRICS)
    found: dict[str, float | None] = {row["name"]: row["last"] for row in logged}
    for row in await steps.between(tx, job_id, step, step):
        found |= {name: row[name] for name in ("loss", "lr", "tokens_per_s") if row[name] is not None}
    return {name: value for name, value in found.items() if value is None or math.isfinite(value)}


async def _note(tx: AsyncConnection, model: str, kind: str, number: int, actor: str) -> None:
    await rows.note(tx, model, {"kind": kind, "data": {"version": number}, "actor": actor, "ts": time.time()})
