"""What becomes of a job: it is cloned, and once it has ended retried, deleted, or restored."""

import asyncio
import hashlib
import json
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Response
from fastapi import Request as HttpRequest

from ...service.jobs import delete as deleting
from ...service.jobs import retry as retrying
from ...service.jobs import submit as submitting
from ...service.jobs.spec_warnings import warnings
from ...service.jobs.submit import Request
from ...service.queries import jobs, submitted_specs
from ...service.schemas.job import Job, JobClone
from ...service.schemas.submitted_spec import SubmittedSpec
from ...service.spec import AnySpec
from ...service.spec_text import SpecText, kept
from .. import spec_copy
from ..http import request_body
from ..http.dependencies import Actor, In, Key
from ..http.job_ids import require_job_id
from ..http.problems import describe
from ..http.validation_errors import read_spec
from ..spec_document import parse, read_text
from ..spec_file import sent_text
from ..spec_overrides import placed
from .jobs import OF_THE_SPEC

router = APIRouter(tags=["jobs"])

_CLONE: dict[str, Any] = {"name": "hotter", "set": {"train.optimizer.lr": 1e-3}}
_CLONE_BODY = request_body.described(["JobClone"], {"other values": _CLONE, "the same spec": {}})


@router.post(
    "/jobs/{job}/retry",
    operation_id="retryJob",
    summary="Retry a job",
    status_code=201,
    response_model=Job,
    responses={
        200: {"model": Job, "description": "The job already existed: same key, same job."},
        **describe("job_not_found", "job_not_ended", "job_succeeded", "idempotency_conflict", *OF_THE_SPEC),
    },
)
async def retry(job: str, answer: Response, context: In, actor: Actor, idempotency_key: Key = None) -> Job:
    """Submit a job that failed or was cancelled again. The new job has its spec, name and labels.

    It continues from the newest checkpoint of the old job, if that has one.
    """
    # Of what the request says, not of the job: a name means another job once the retry exists.
    digest = hashlib.sha256(f"retry {job}".encode()).hexdigest()
    request = Request(idempotency_key, digest, actor)
    made, created = await retrying.retry(context.store, context.settings, job, request, context.files, read_text)
    context.wake_dispatcher()
    answer.status_code = 201 if created else 200
    answer.headers["Location"] = f"/v1/jobs/{made.id}"
    return made


@router.post(
    "/jobs/{job}/clone",
    operation_id="cloneJob",
    summary="Clone a job",
    status_code=201,
    response_model=Job,
    responses={
        200: {"model": Job, "description": "The job already existed: same key, same body."},
        **describe("job_not_found", "idempotency_conflict", *OF_THE_SPEC),
    },
    openapi_extra={"requestBody": _CLONE_BODY},
)
async def clone(
    job: str, request: HttpRequest, answer: Response, context: In, actor: Actor, idempotency_key: Key = None
) -> Job:
    """Submit a copy of a job's spec, with its comments and its present layout, as a new job that begins where the old one began.

    The old job may be in any state, and stays as it is. Its id is the new job's label `parent`.
    """
    form = request_body.format_of(request)
    document = parse(await request_body.read(request), form)
    wanted = request_body.validated(JobClone, document)
    # As of a retry.
    digest = hashlib.sha256(f"clone {job} {json.dumps(document, sort_keys=True)}".encode()).hexdigest()
    asked = Request(idempotency_key, digest, actor)
    made = await submitting.replayed(context.store, asked)
    answer.status_code = 200
    if made is None:
        found = await jobs.get_job(context.store, job)
        submitted = await submitted_specs.submitted_spec(context.store, found.id)
        spec, text = await asyncio.to_thread(_copy, found, submitted, wanted)
        asked = replace(asked, text=text)
        made, created = await submitting.create(context.store, context.settings, spec, asked, context.files)
        made = made.model_copy(update={"warnings": [*made.warnings, *warnings(spec)]})
        context.wake_dispatcher()
        answer.status_code = 201 if created else 200
    answer.headers["Location"] = f"/v1/jobs/{made.id}"
    return made


def _copy(job: Job, submitted: SubmittedSpec, wanted: JobClone) -> tuple[AnySpec, SpecText | None]:
    """The spec of the clone, and its text."""
    given = spec_copy.cloned(job, submitted, wanted.name, wanted.set)
    document = placed(given.document, wanted.set)
    return read_spec(document), kept(sent_text(given, document), read_text)


@router.delete(
    "/jobs/{job}",
    operation_id="deleteJob",
    summary="Delete a job",
    responses=describe(
        "job_not_found", "job_not_ended", "job_pinned", "job_in_use", "job_in_models", "invalid_request"
    ),
)
async def delete(job: str, context: In, actor: Actor) -> Job:
    """Delete a job that has ended, by its id. Repeating is harmless. It is hidden at once, and can be restored for a time.

    That is a day, or SHARDYARD_UNDELETE_S. Then its checkpoints and all records are removed.
    """
    # Of two equal requests with a name, the second would delete an older job of this name.
    require_job_id(job, "See its id with `shardyard list --name NAME`.")
    return await deleting.delete(context.store, job, actor)


@router.post(
    "/jobs/{job}/undelete",
    operation_id="undeleteJob",
    summary="Restore a deleted job",
    responses=describe("job_not_found", "invalid_request"),
)
async def undelete(job: str, context: In) -> Job:
    """Restore a deleted job, by its id. Repeating is harmless."""
    # Of two equal requests with a name, the second would restore an older job of this name.
    require_job_id(job, "See its id with `shardyard undelete`.")
    return await deleting.undelete(context.store, job)
