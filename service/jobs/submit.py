"""Submits jobs and cancels them: the checked spec becomes a row, in one or a few short transactions."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pydantic import ValidationError
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ...strategies.layout import ModelFacts
from ...workers import own_plan
from ...workers.device_choices import Choices, choices, continues_in
from ...workers.messages.event import StateEvent, to_json
from ...workers.spec import TrainSpec, facts_of
from .. import capacity, secrets
from ..errors import IdempotencyConflict, JobEnded, StateChanged, UnknownCheckpoint
from ..ids import job_in
from ..queries import checkpoint_catalogue, models
from ..queries.jobs import deleted, existing, find, job_of
from ..schemas.job import Job
from ..schemas.problem import FieldError
from ..settings import Settings
from ..spec import AnySpec, CommandSpec, JobSpec
from ..spec_files import SpecFiles
from ..spec_text import SpecText
from ..states import State
from ..store import events as event_rows
from ..store import jobs as job_rows
from ..store import submitted_specs
from ..store.dialect import unix_now
from ..store.engine import Store
from . import auto_layout, code_archives, command_job, elastic, memory_plan, validation
from . import resume as resuming
from .columns import new_columns, refuse_null_characters
from .source_checkpoint import newest_of_job
from .transitions import Cause, move


@dataclass(frozen=True)
class Request:
    """Who submits the job, with which idempotency key and digest of the body, as the retry of which job, and with which text.

    `guard` begins the transaction that stores the job: if it raises, nothing is stored.
    """

    idempotency_key: str | None
    body_hash: str
    actor: str
    retry_of: str | None = None
    text: SpecText | None = None
    guard: Callable[[AsyncConnection], Awaitable[None]] | None = None

    def columns(self) -> dict[str, Any]:
        """Of the job's row."""
        return {name: getattr(self, name) for name in ("idempotency_key", "body_hash", "actor", "retry_of")}


async def submit(
    store: Store,
    settings: Settings,
    spec: AnySpec,
    idempotency_key: str | None,
    body_hash: str,
    actor: str,
    files: SpecFiles | None = None,
) -> tuple[Job, bool]:
    """Check the spec against layout, files and cluster, and store it as `queued`. `files`: this process's file checks.

    False beside the job: it was there before (the same key and body). Raises InvalidLayout, InvalidSpec, MissingFile, NotAFile,
    FileTooLarge, TooManyFiles, FilesTooSlow, AdvisorBusy, EmptyCorpus, TooManyRanks, DoesNotFit, UnknownCheckpoint, CheckpointDeleted,
    CheckpointCorrupt, ResumeMismatch, UnknownCode, UnknownSecret, IdempotencyConflict, JobDeleted; then nothing is stored.
    """
    return await requested(store, settings, spec, Request(idempotency_key, body_hash, actor), files)


async def requested(
    store: Store, settings: Settings, spec: AnySpec, request: Request, files: SpecFiles | None = None
) -> tuple[Job, bool]:
    """As `submit`."""
    known = await replayed(store, request)
    return (await create(store, settings, spec, request, files)) if known is None else (known, False)


async def replayed(store: Store, request: Request) -> Job | None:
    """The job that an earlier request with the same key made. Raises IdempotencyConflict, JobDeleted."""
    if request.idempotency_key is None:
        return None
    async with store.read() as tx:
        known = await job_rows.by_key(tx, request.idempotency_key)
    return None if known is None else _replayed(known, request.body_hash)


async def create(
    store: Store, settings: Settings, spec: AnySpec, request: Request, files: SpecFiles | None = None
) -> tuple[Job, bool]:
    """As `submit`, for a key that no job has, or that another request has used in the meantime."""
    row, warnings = await row_of(store, settings, spec, files or SpecFiles())
    row |= request.columns() | {"parent": job_in(row["resume"]) if row["resume"] else None}
    async with store.write() as tx:
        if request.guard is not None:
            await request.guard(tx)
        await keep_sources(tx, row)
        if row["elastic"]:
            row["elastic_at"] = unix_now(tx) + spec.policy.elastic_grace_s
        created = await job_rows.insert(tx, row)
        if created:
            event = StateEvent(state=State.QUEUED, reason=None, message=None, attempt=0)
            first = {
                **{"attempt": 0, "kind": event.kind, "ts": row["created_at"]},
                **{"actor": request.actor, "data": to_json(event)},
            }
            await event_rows.append(tx, row["id"], [first])
            if request.text is not None:
                await submitted_specs.insert(tx, row["id"], request.text.format, request.text.text)
            if request.retry_of is not None:
                await job_rows.set_columns(tx, request.retry_of, {"retried_by": row["id"]})
        stored = await (
            job_rows.by_id(tx, row["id"]) if created else job_rows.by_key(tx, request.idempotency_key or "")
        )
    assert stored is not None
    job = job_of(stored).model_copy(update={"warnings": warnings})
    return (job, True) if created else (_replayed(stored, request.body_hash), False)


async def keep_sources(tx: AsyncConnection, row: dict[str, Any]) -> None:
    """Lock the jobs from which a new job, or a new sweep's trials, continue, and their code: none is deleted at the same time.

    Raises JobDeleted, UnknownCode.
    """
    for source in sorted({row["parent"], row["retry_of"]} - {None}):
        locked = await job_rows.lock(tx, source)
        if locked is not None and locked["deleted_at"] is not None:
            raise deleted(locked, _resume_field(row) if source == row["parent"] else None)
    if row.get("code") is not None:
        await code_archives.use(tx, row["code"])


def _resume_field(row: dict[str, Any]) -> str:
    return "train.resume_from" if "train" in row["spec"] else "resume_from"


async def row_of(
    store: Store, settings: Settings, spec: AnySpec, files: SpecFiles
) -> tuple[dict[str, Any], list[FieldError]]:
    """The row of a checked spec, which is not stored yet, and warnings. Raises what `submit` raises for the spec."""
    if isinstance(spec, CommandSpec):
        return await command_job.new_row(store, settings, spec, files), []
    new = await new_row(store, settings, spec, files)
    return new.row, new.warnings


def _replayed(row: RowMapping, body_hash: str) -> Job:
    if row["body_hash"] == body_hash:
        if row["deleted_at"] is not None:
            raise deleted(row)
        return job_of(row)
    raise IdempotencyConflict(
        f"This idempotency key belongs to {row['id']}, which was submitted with another body.",
        field="Idempotency-Key",
        remedy="Use a new key for a new job.",
    )


@dataclass(frozen=True)
class NewRow:
    """A checked spec as a row of `jobs` that is not stored yet."""

    row: dict[str, Any]
    checked: validation.Checked
    plan: memory_plan.Planned | None
    choices: Choices

    @property
    def warnings(self) -> list[FieldError]:
        return [] if self.plan is None else self.plan.warnings


async def new_row(store: Store, settings: Settings, spec: JobSpec, files: SpecFiles) -> NewRow:
    """Check the spec. Raises what `submit` raises for it."""
    refuse_null_characters(spec.model_dump(mode="json", by_alias=True))
    validation.check_paths(spec.train)
    spec = spec.model_copy(update={"train": own_plan.kept(spec.train)})
    checked = await validation.check(spec, settings, files)
    async with store.read() as tx:
        known = await capacity.known(tx, settings)
        await secrets.sealed(tx, spec.secrets)
        version = await models.to_resume(tx, spec.train.resume_from, "train.resume_from")
        # A clone names the folder with which its job began: what the catalogue knows of it says more than that it is gone.
        await checkpoint_catalogue.refuse_unusable_path(tx, spec.train.resume_from or "", "train.resume_from")
        source = await _source(tx, spec.train.resume_from, version)
        reported = None if source is None else await event_rows.newest(tx, source["id"], "plan")
    resume = None
    if version is not None:
        spec = _naming(spec, models.pinned_text(version))
        resume = await files.look(lambda _: _resume_version(settings, spec.train, version, source))
    elif spec.train.resume_from is not None:
        resume = await _resume(store, settings, spec.train, source, files)
    if resume is not None:
        async with store.read() as tx:
            await checkpoint_catalogue.refuse_unusable_path(tx, resume, "train.resume_from")
    if spec.train.undecided:
        devices = auto_layout.of_cluster(spec, known)
        spec = await files.search(partial(auto_layout.decided, spec, checked.architecture, devices))
        checked = validation.on_its_layout(spec.train, checked)
    validation.check_ranks(spec, checked.least_ranks(spec), [one.inventory for one in known])
    plan = await asyncio.to_thread(memory_plan.planned, spec, checked, known)
    if plan is None:
        device = memory_plan.device_facts(spec, known)
    else:
        spec, checked, device = plan.spec, plan.checked, plan.device
    of_layout = elastic.columns(spec, checked.batch, checked.elastic_layouts)
    row = new_columns(spec) | of_layout | {"resume": resume, "steps": spec.train.steps}
    architecture = checked.architecture
    facts = ModelFacts(None, None, None, None) if architecture is None else facts_of(architecture)
    chosen = choices(spec.train, facts, device)
    return NewRow(row, checked, plan, replace(chosen, reasons=(*chosen.reasons, *_continues(reported, chosen))))


def _continues(reported: RowMapping | None, chosen: Choices) -> Iterator[str]:
    """The sentence for a checkpoint whose job `reported` another precision than the one that is `chosen`."""
    before = None if reported is None else reported["data"].get("precision")
    if before not in (None, now := chosen.train.precision.compute):
        yield continues_in(str(before), now)


async def _source(tx: AsyncConnection, given: str | None, version: RowMapping | None) -> RowMapping | None:
    """The job of the version, or else of the given id or name, or of the folder in which the given path is, if there is one."""
    if version is not None:
        return await job_rows.by_id(tx, version["source"])
    if not given or not _is_path(given):
        return await find(tx, given) if given else None
    owner = job_in(given)
    return None if owner is None else await job_rows.by_id(tx, owner)


def _is_path(given: str) -> bool:
    """Whether it is one, or an address: no id and no name has a slash."""
    return "/" in given


def _naming(spec: JobSpec, version: str) -> JobSpec:
    """The spec with a version that no alias can move."""
    return spec.model_copy(update={"train": spec.train.model_copy(update={"resume_from": version})})


def _resume_version(settings: Settings, train: TrainSpec, version: RowMapping, source: RowMapping | None) -> str:
    """The checkpoint of a version. Raises ResumeMismatch, CheckpointCorrupt."""
    resuming.refuse_other_kind(str(train.resume_from), version["trained"], trains=True, field="train.resume_from")
    resuming.check_resumed(train, version["path"], _trained(source), settings.local_files)
    return str(version["path"])


async def _resume(
    store: Store, settings: Settings, train: TrainSpec, source: RowMapping | None, files: SpecFiles
) -> str:
    """The checkpoint that `resume_from` names. `source`: as of `_source`. What it trained is compared; a path stays the path."""
    named = str(train.resume_from)
    if source is None or _is_path(named):
        found = await files.look(lambda _: resuming.resume_from_path(named, settings))
    elif "train" in source["spec"]:
        found = await newest_of_job(store, settings, source, files, "train.resume_from")
    else:
        raise UnknownCheckpoint(
            f"{source['id']} runs a command, whose checkpoints are its own.",
            field="train.resume_from",
            remedy="Name a job that trains, or a checkpoint's folder.",
        )
    await files.look(lambda _: resuming.check_resumed(train, found, _trained(source), settings.local_files))
    return found


def _trained(source: RowMapping | None) -> TrainSpec | None:
    """What the job trains; None if it runs a command, or if an earlier version stored a spec that this one does not read."""
    if source is None or "train" not in source["spec"]:
        return None
    try:
        return TrainSpec.model_validate(source["spec"]["train"])
    except ValidationError:
        return None


async def cancel(store: Store, job_id: str, actor: str) -> Job:
    """Cancel the job. Harmless if repeated. Raises JobNotFound, or JobEnded if it succeeded or failed."""
    while True:
        try:
            async with store.write() as tx:
                state = State((await existing(tx, job_id))["state"])
                if state in (State.SUCCEEDED, State.FAILED):
                    raise JobEnded(f"{job_id} has {state} already.", remedy="An ended job cannot be cancelled.")
                if state not in (State.CANCELLING, State.CANCELLED):
                    to = State.CANCELLED if state in (State.QUEUED, State.PAUSED) else State.CANCELLING
                    await move(tx, job_id, state, to, Cause(actor, time.time(), "cancelled_by_user"))
                return job_of(await existing(tx, job_id))
        except StateChanged:
            continue  # it moved between our read and our write; each time around something else made progress
