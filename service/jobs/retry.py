"""Retries a job that failed or was cancelled, as a new job with the same spec.

The new job continues from the old one's newest checkpoint, by `resume_from`: a training, and a program that saved one. Without a
checkpoint it begins as the old job did.
"""

from dataclasses import replace
from typing import Any

from pydantic import ValidationError
from sqlalchemy.engine import RowMapping

from ...workers.storage.uri import below
from ..errors import InvalidSpec, JobNotEnded, JobSucceeded, UnknownCheckpoint
from ..queries.jobs import existing
from ..schemas.job import Job
from ..settings import Settings
from ..spec import AnySpec, kind_of
from ..spec_files import SpecFiles
from ..states import FINAL, State
from ..store.engine import Store
from . import resume as resuming
from .submit import Request, create, replayed


async def retry(store: Store, settings: Settings, job: str, request: Request, files: SpecFiles) -> tuple[Job, bool]:
    """Submit the job (id or name) again. False beside the new job: the same key made it before.

    Raises JobNotFound, JobDeleted, JobNotEnded, JobSucceeded, and what `submit` raises; then nothing is stored.
    """
    known = await replayed(store, request)
    if known is not None:
        return known, False
    async with store.read() as tx:
        row = await existing(tx, job)
    _refuse_others(row)
    spec = await _spec(settings, row, files)
    return await create(store, settings, spec, replace(request, retry_of=row["id"]), files)


def _refuse_others(row: RowMapping) -> None:
    if row["state"] == State.SUCCEEDED:
        remedy = f"To train further, submit a job with resume_from: {row['id']} and more steps."
        raise JobSucceeded(f"{row['id']} has succeeded.", remedy=remedy)
    if row["state"] not in FINAL:
        raise JobNotEnded(f"{row['id']} is {row['state']}.", remedy="Wait for its end, or cancel it first.")


async def _spec(settings: Settings, row: RowMapping, files: SpecFiles) -> AnySpec:
    """The job's spec under its present name and labels. Raises InvalidSpec if this version has other rules."""
    stored = {**row["spec"], "name": row["name"], "labels": row["labels"]}
    try:
        if "train" in stored:
            stored["train"] = {**stored["train"], **await _source(settings, row, files)}
        else:
            stored["resume_from"] = (await _source(settings, row, files))["resume_from"]
        return kind_of(stored).model_validate(stored)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"]))
        remedy = "Submit a corrected spec; `shardyard show JOB --json` has the stored one."
        raise InvalidSpec(f"The stored spec is no longer valid: {first['msg']}.", field=field, remedy=remedy) from None


async def _source(settings: Settings, row: RowMapping, files: SpecFiles) -> dict[str, Any]:
    """The fields of the spec, or of its `train`, that say where the new job begins."""
    saves = row["spec"].get("train", row["spec"]).get("checkpoint") or {}
    root = below(saves.get("uri") or settings.storage, row["id"])
    try:
        await files.look(lambda _: resuming.resume_from_job(row["id"], row["checkpoint"], root, settings))
    except UnknownCheckpoint:
        # The path, because a name in the spec may be that of a newer job by now.
        return {"resume_from": row["resume"]}
    return {"resume_from": row["id"], "resume_data": "continue"}
