"""Jobs: submit, list, read, edit, cancel."""

import asyncio
import hashlib
import json
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response

from ...service import spec_text
from ...service.jobs import edit as editing
from ...service.jobs import pause as pausing
from ...service.jobs import preview
from ...service.jobs import reshard as layouts
from ...service.jobs import submit as submitting
from ...service.jobs.spec_warnings import warnings
from ...service.queries import jobs, submitted_specs
from ...service.schemas.job import Job, JobEdit, Jobs
from ...service.schemas.job_order import PATTERN, SORTS, Sort
from ...service.schemas.preview import Preview
from ...service.schemas.problem import FieldError
from ...service.schemas.submitted_spec import SubmittedSpec
from ...service.spec import AnySpec
from ...service.spec_text import SpecText
from ...service.states import State
from ...service.store.jobs import Filter
from ...workers.planned_memory import without_plan
from ..errors import SHORTER_SPEC, InvalidDocument, InvalidParameter
from ..http import request_body
from ..http.dependencies import Actor, In, Key
from ..http.job_ids import require_job_id
from ..http.problems import describe
from ..http.validation_errors import read_spec, read_training_spec
from ..spec_document import Format, parse, read_text

router = APIRouter(tags=["jobs"])

_EXAMPLE: dict[str, Any] = {
    "name": "quickstart",
    "train": {
        "model": {"family": "llama", "preset": "nano"},
        "data": {"source": "python-stdlib", "seq_len": 256},
        "layout": {"data": 2, "tensor": 2, "zero": 1},
        "steps": 300,
        "global_batch": 16,
    },
}
_COMMAND: dict[str, Any] = {
    "name": "my-script",
    "command": ["python", "train.py"],
    "ranks": 2,
    "cwd": "/shared/project",
}
_BODY = request_body.described(["JobSpec", "CommandSpec"], {"quickstart": _EXAMPLE, "command": _COMMAND})
_LAYOUT_BODY = request_body.described(["LayoutChange"], {"tensor": {"layout": {"data": 2, "tensor": 2, "zero": 1}}})
_EDIT_BODY = request_body.described(
    ["JobEdit"],
    {"all": {"name": "nano", "labels": {"team": "search"}, "notes": "The learning rate is too high.\nNext: 3e-4."}},
)
_OF_FILES = ("missing_file", "not_a_file", "file_too_large", "too_many_files", "files_too_slow")
#: Codes by which a spec is refused.
OF_THE_SPEC = (
    "invalid_encoding",
    "invalid_syntax",
    "request_timeout",
    "spec_too_large",
    "unsupported_media_type",
    "invalid_request",
    "invalid_spec",
    "invalid_layout",
    *_OF_FILES,
    "advisor_busy",
    "empty_corpus",
    "too_many_ranks",
    "does_not_fit",
    "unknown_checkpoint",
    "checkpoint_storage_failed",
    "checkpoint_deleted",
    "checkpoint_corrupt",
    "resume_mismatch",
    "model_not_found",
    "version_not_found",
    "unknown_code",
    "unknown_secret",
    "job_deleted",
)
_REFUSALS = describe(*OF_THE_SPEC, "idempotency_conflict")


@router.post(
    "/jobs",
    operation_id="submitJob",
    summary="Submit a job",
    status_code=201,
    response_model=Job,
    responses={200: {"model": Job, "description": "The job already existed: same key, same body."}, **_REFUSALS},
    openapi_extra={"requestBody": _BODY},
)
async def submit(request: Request, answer: Response, context: In, actor: Actor, idempotency_key: Key = None) -> Job:
    """Check a job spec (YAML or JSON) and queue the job. A refused spec stores nothing."""
    form = request_body.format_of(request)
    content = await request_body.read(request, remedy=SHORTER_SPEC)
    spec, digest = await asyncio.to_thread(_read_spec, content, form)
    text = await asyncio.to_thread(_text, content, form)
    asked = submitting.Request(idempotency_key, digest, actor, text=text)
    job, created = await submitting.requested(context.store, context.settings, spec, asked, context.files)
    context.wake_dispatcher()
    answer.status_code = 201 if created else 200
    answer.headers["Location"] = f"/v1/jobs/{job.id}"
    return job.model_copy(update={"warnings": [*job.warnings, *warnings(spec)]})


def _text(content: bytes, form: Format) -> SpecText | None:
    """What is kept of a body that is a spec."""
    given = SpecText(form, content.decode("utf-8-sig"))
    return spec_text.kept(given, read_text)


@router.post(
    "/jobs/preview",
    operation_id="previewJob",
    summary="Preview a job",
    responses=describe(*OF_THE_SPEC),
    openapi_extra={"requestBody": _BODY},
)
async def preview_job(request: Request, context: In) -> Preview:
    """Check a job spec as a submission does, and return what it would run as. Nothing is stored."""
    form = request_body.format_of(request)
    content = await request_body.read(request, remedy=SHORTER_SPEC)
    spec, _ = await asyncio.to_thread(_read_spec, content, form)
    return await preview.preview(context.store, context.settings, spec, context.files)


def _filter(
    state: Annotated[State | None, Query(description="Only jobs in this state.")] = None,
    label: Annotated[
        list[str] | None,
        Query(max_length=16, description="Only jobs with this label, `key=value`. Repeat it to require several."),
    ] = None,
    name: Annotated[str | None, Query(max_length=63, description="Only jobs with exactly this name.")] = None,
    text: Annotated[
        str | None, Query(max_length=255, description="Only jobs whose id or name contains this text.")
    ] = None,
    deleted: Annotated[bool, Query(description="Only deleted jobs, which can be restored. Else only others.")] = False,
) -> Filter:
    return Filter(state=state, name=name, text=text, labels=_labels(label or []), deleted=deleted)


def _sort(
    sort: Annotated[
        str,
        Query(
            max_length=255,
            description=f"Order: {SORTS}. A duration is in seconds from the job's start to its end, a device time in device-seconds of "
            "its attempts; of jobs that had not ended, both are as of the time of the first page. NAME is a logged metric: its "
            "newest, lowest or highest value. Jobs that have no such number come last.",
            json_schema_extra={"pattern": PATTERN},
        ),
    ] = "newest",
) -> Sort:
    found = Sort.parse(sort)
    if found is None:
        raise InvalidParameter(f"{sort[:80]!r} is no order of jobs.", field="sort", remedy=f"Use {SORTS}.")
    return found


@router.get(
    "/jobs", operation_id="listJobs", summary="List jobs", responses=describe("invalid_cursor", "invalid_request")
)
async def list_jobs(
    context: In,
    wanted: Annotated[Filter, Depends(_filter)],
    sort: Annotated[Sort, Depends(_sort)],
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    cursor: Annotated[
        str | None,
        Query(max_length=255, description="`next` of the previous page, in the same order. It is valid for a day."),
    ] = None,
) -> Jobs:
    """One page of jobs."""
    return await jobs.list_jobs(context.store, wanted, sort=sort, cursor=cursor, limit=limit)


@router.get(
    "/jobs/{job}", operation_id="getJob", summary="Read a job", responses=describe("job_not_found", "invalid_request")
)
async def get_job(job: str, context: In) -> Job:
    """A job by its id, or the newest of that name."""
    return await jobs.get_job(context.store, job)


@router.get(
    "/jobs/{job}/submitted-spec",
    operation_id="getSubmittedSpec",
    summary="Read the text of a job's spec",
    responses=describe("job_not_found", "invalid_request"),
)
async def get_submitted_spec(job: str, context: In) -> SubmittedSpec:
    """The spec of a job as it was submitted, with its comments. The job itself has the resolved spec."""
    return await submitted_specs.submitted_spec(context.store, job)


@router.patch(
    "/jobs/{job}",
    operation_id="editJob",
    summary="Edit a job",
    responses=describe(
        *("job_not_found", "invalid_encoding", "invalid_syntax", "request_timeout"),
        *("spec_too_large", "unsupported_media_type", "invalid_request"),
    ),
    openapi_extra={"requestBody": _EDIT_BODY},
)
async def edit(job: str, request: Request, context: In) -> Job:
    """Change a job's name, labels or notes, or pin it, in any state. Its spec stays as it was submitted. Repeating is harmless.

    A job whose name changes is given by its id.
    """
    form = request_body.format_of(request)
    content = await request_body.read(request)
    wanted = request_body.validated(JobEdit, parse(content, form))
    if wanted.name is not None:  # of two equal requests with a name, the second would rename an older job of this name
        require_job_id(job, "See its id with `shardyard list --name NAME`.")
    found = await jobs.get_job(context.store, job)
    return await editing.edit(context.store, found.id, wanted)


@router.post(
    "/jobs/{job}/cancel",
    operation_id="cancelJob",
    summary="Cancel a job",
    status_code=202,
    responses=describe("job_not_found", "job_ended", "invalid_request"),
)
async def cancel(job: str, context: In, actor: Actor) -> Job:
    """Cancel a job. Repeating is harmless; a job that has succeeded or failed cannot be cancelled."""
    found = await jobs.get_job(context.store, job)
    cancelled = await submitting.cancel(context.store, found.id, actor)
    context.wake_dispatcher()
    return cancelled


@router.post(
    "/jobs/{job}/pause",
    operation_id="pauseJob",
    summary="Pause a job",
    status_code=202,
    responses=describe("job_not_found", "job_ended", "invalid_request"),
)
async def pause(job: str, context: In, actor: Actor) -> Job:
    """Pause a job: it saves a checkpoint after its current step, and frees its devices. A queued job leaves the queue.

    Repeating is harmless.
    """
    found = await jobs.get_job(context.store, job)
    paused = await pausing.pause(context.store, found.id, actor)
    context.wake_dispatcher()
    return paused


@router.post(
    "/jobs/{job}/resume",
    operation_id="resumeJob",
    summary="Resume a paused job",
    status_code=202,
    responses=describe("job_not_found", "job_ended", "job_pausing", "invalid_request"),
)
async def resume(job: str, context: In, actor: Actor) -> Job:
    """Queue a paused job again. It continues from its newest checkpoint. Repeating is harmless."""
    found = await jobs.get_job(context.store, job)
    resumed = await pausing.resume(context.store, found.id, actor)
    context.wake_dispatcher()
    return resumed


@router.post(
    "/jobs/{job}/reshard",
    operation_id="reshardJob",
    summary="Change a job's layout",
    status_code=202,
    responses=describe(
        "job_not_found", "job_ended", "job_pausing", "invalid_spec", "invalid_layout",
        *_OF_FILES, "empty_corpus", "too_many_ranks", "does_not_fit",
        "invalid_encoding",
        "invalid_syntax", "request_timeout", "spec_too_large", "unsupported_media_type", "invalid_request",
    ),
    openapi_extra={"requestBody": _LAYOUT_BODY},
)  # fmt: skip
async def reshard(job: str, request: Request, context: In, actor: Actor) -> Job:
    """Continue a job with another layout: it saves a checkpoint after its current step, and resumes from it.

    The layout of a job that runs a command is its ranks, and ranks_per_node. Its ranks get SIGTERM, and the command starts again.
    """
    form = request_body.format_of(request)
    content = await request_body.read(request)
    found = await jobs.get_job(context.store, job)
    spec = await asyncio.to_thread(_with_layout, found.spec, content, form)
    changed = await layouts.reshard(context.store, context.settings, found.id, spec, actor, context.files)
    context.wake_dispatcher()
    return changed


def _with_layout(spec: dict[str, Any], content: bytes, form: Format) -> AnySpec:
    """The job's spec with the layout of the body, which holds nothing else."""
    document, trains = parse(content, form), "train" in spec
    if not isinstance(document, dict) or document.keys() != {"layout"} or not isinstance(document["layout"], dict):
        remedy = 'Such as {"layout": {"data": 2, "tensor": 2}}; degrees that are left out are 1.'
        of_command = 'Such as {"layout": {"ranks": 2}}.'
        message = "The body must hold a layout and nothing else."
        raise InvalidDocument([FieldError(field="layout", message=message, remedy=remedy if trains else of_command)])
    if trains:
        return read_training_spec(spec | {"train": spec["train"] | document})
    layout: dict[str, Any] = document["layout"]
    unknown = next((name for name in layout if name not in ("ranks", "ranks_per_node")), None)
    if unknown is not None or "ranks" not in layout:
        message = "A job that runs a command has no such degree." if unknown else "The number of ranks is missing."
        remedy = "The layout of a command is its ranks, such as ranks=2, and ranks_per_node."
        raise InvalidDocument([FieldError(field=f"layout.{unknown or 'ranks'}", message=message, remedy=remedy)])
    return read_spec({**spec, "elastic": None, **layout})


def _read_spec(content: bytes, form: Format) -> tuple[AnySpec, str]:
    """The spec, and a digest that is the same for the same document in YAML and JSON, with or without a dry run's plan."""
    document = parse(content, form)
    spec = read_spec(document)
    canonical = json.dumps(without_plan(document), sort_keys=True, separators=(",", ":"))
    return spec, hashlib.sha256(canonical.encode()).hexdigest()


def _labels(pairs: list[str]) -> dict[str, str]:
    wrong = next((pair for pair in pairs if not pair.partition("=")[0] or "=" not in pair), None)
    if wrong is not None:
        raise InvalidParameter(f"{wrong[:80]!r} is not key=value.", field="label", remedy="Such as label=team=search.")
    labels: dict[str, str] = {}
    for pair in pairs:
        key, _, value = pair.partition("=")
        if labels.setdefault(key, value) != value:
            message = f"No job has two values of {key[:80]!r}."
            raise InvalidParameter(message, field="label", remedy="Require one value of each label.")
    return labels
