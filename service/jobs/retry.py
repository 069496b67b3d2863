"""Retries a job that failed or was cancelled, as a new job with the same spec.

The new job continues from the old one's newest checkpoint, by `resume_from`: a training, and a program that saved one. Without a
checkpoint it begins as the old job did. The text of the old spec becomes that of the new one, where it can be
changed in place.
"""

import asyncio
from dataclasses import replace
from typing import Any, Final

from pydantic import ValidationError
from sqlalchemy.engine import RowMapping

from ..errors import InvalidSpec, JobNotEnded, JobSucceeded, ShardyardError, UnknownCheckpoint
from ..layout_choice import with_present_layout
from ..queries.jobs import existing
from ..schemas.job import Job
from ..settings import Settings
from ..spec import AnySpec, JobSpec, kind_of
from ..spec_files import SpecFiles
from ..spec_text import Read, SpecText, changed
from ..states import FINAL, State
from ..store import submitted_specs
from ..store.engine import Store
from . import elastic
from .source_checkpoint import newest_of_job
from .submit import Request, create, replayed

#: The values of keys that a text need not have. `resume_data` is `continue` by default.
_EMPTY: Final[tuple[object, ...]] = (None, {}, "continue")


async def retry(
    store: Store, settings: Settings, job: str, request: Request, files: SpecFiles, read: Read | None = None
) -> tuple[Job, bool]:
    """Submit the job (id or name) again. False beside the new job: the same key made it before. `read` reads texts of specs.

    Raises JobNotFound, JobDeleted, JobNotEnded, JobSucceeded, and what `submit` raises; then nothing is stored.
    """
    known = await replayed(store, request)
    if known is not None:
        return known, False
    async with store.read() as tx:
        row = await existing(tx, job)
        submitted = await submitted_specs.of_job(tx, row["id"])
    _refuse_others(row)
    spec = await _spec(store, settings, row, files)
    text = None if submitted is None or read is None else await asyncio.to_thread(_text, submitted, spec, read)
    return await create(store, settings, spec, replace(request, retry_of=row["id"], text=text), files)


def _text(submitted: RowMapping, spec: AnySpec, read: Read) -> SpecText | None:
    """The old text with the values in which `spec` differs. None if it does not read to this spec."""
    given, wanted = SpecText(submitted["format"], submitted["text"]), spec.model_dump(mode="json", by_alias=True)
    try:
        document = read(given)
        of_program = () if "train" in document else ("resume_from",)
        after = _with(document, wanted, ("name", "labels", *of_program))
        if "train" in document:
            after["train"] = _with(document["train"], wanted["train"], ("resume_from", "resume_data"))
        if submitted["layout_changed"] or (isinstance(spec, JobSpec) and spec.train.layout.auto is not None):
            after = with_present_layout(after, spec)
        again = kind_of(after).model_validate(after).model_dump(mode="json", by_alias=True)
    except (ShardyardError, ValidationError):
        return None
    return changed(given, after, read) if elastic.same(again, spec.model_dump(mode="json", by_alias=True)) else None


def _with(document: dict[str, Any], wanted: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """The document with these values. One that is left out stays so where it is empty."""
    return document | {name: wanted[name] for name in names if name in document or wanted[name] not in _EMPTY}


def _refuse_others(row: RowMapping) -> None:
    if row["state"] == State.SUCCEEDED:
        remedy = f"To train further, submit a job with resume_from: {row['id']} and more steps."
        raise JobSucceeded(f"{row['id']} has succeeded.", remedy=remedy)
    if row["state"] not in FINAL:
        raise JobNotEnded(f"{row['id']} is {row['state']}.", remedy="Wait for its end, or cancel it first.")


async def _spec(store: Store, settings: Settings, row: RowMapping, files: SpecFiles) -> AnySpec:
    """The job's spec under its present name and labels. Raises InvalidSpec if this version has other rules."""
    stored = {**row["spec"], "name": row["name"], "labels": row["labels"]}
    try:
        if "train" in stored:
            stored["train"] = {**stored["train"], **await _source(store, settings, row, files)}
        else:
            stored["resume_from"] = (await _source(store, settings, row, files))["resume_from"]
        return kind_of(stored).model_validate(stored)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"]))
        remedy = "Submit a corrected spec; `shardyard show JOB --json` has the stored one."
        raise InvalidSpec(f"The stored spec is no longer valid: {first['msg']}.", field=field, remedy=remedy) from None


async def _source(store: Store, settings: Settings, row: RowMapping, files: SpecFiles) -> dict[str, Any]:
    """The fields of the spec, or of its `train`, that say where the new job begins."""
    field = "train.resume_from" if "train" in row["spec"] else "resume_from"
    try:
        await newest_of_job(store, settings, row, files, field)
    except UnknownCheckpoint:
        # The path, because a name in the spec may be that of a newer job by now.
        return {"resume_from": row["resume"]}
    return {"resume_from": row["id"], "resume_data": "continue"}
