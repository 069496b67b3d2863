"""What becomes of an ended job: it is retried, deleted, or restored."""

import hashlib

from fastapi import APIRouter, Response

from ...service import ids
from ...service.jobs import delete as deleting
from ...service.jobs import retry as retrying
from ...service.jobs.submit import Request
from ...service.schemas.job import Job
from ..errors import InvalidParameter
from ..http.dependencies import Actor, In, Key
from ..http.problems import describe
from ..spec_document import read_text
from .jobs import OF_THE_SPEC

router = APIRouter(tags=["jobs"])


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


@router.delete(
    "/jobs/{job}",
    operation_id="deleteJob",
    summary="Delete a job",
    responses=describe(
        "job_not_found", "job_not_ended", "job_pinned", "job_in_use", "job_in_models", "invalid_request"
    ),
)
async def delete(job: str, context: In, actor: Actor) -> Job:
    """Delete a job that has ended, by its id. Repeating is harmless. It is hidden at once, and can be restored for a day.

    Then its checkpoints and all records are removed.
    """
    if ids.parse("job", job) is None:
        # Of two equal requests with a name, the second would delete an older job of this name.
        remedy = "See its id with `shardyard list --name NAME`."
        raise InvalidParameter(f"{job[:80]!r} is not the id of a job.", field="job", remedy=remedy)
    return await deleting.delete(context.store, job, actor)


@router.post(
    "/jobs/{job}/undelete",
    operation_id="undeleteJob",
    summary="Restore a deleted job",
    responses=describe("job_not_found", "invalid_request"),
)
async def undelete(job: str, context: In) -> Job:
    """Restore a deleted job, by its id, or the newest deleted one of that name. Repeating is harmless."""
    return await deleting.undelete(context.store, job)
