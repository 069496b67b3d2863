"""Profiles of running ranks: requests, and their list. Their files are files of the job."""

from typing import Annotated

from fastapi import APIRouter, Query, Request

from ...service.orders import rank_profiles
from ...service.schemas.profile import Profile, ProfileRequest, Profiles
from ..http import request_body
from ..http.dependencies import Actor, In
from ..http.job_ids import OrderKey
from ..http.problems import describe
from ..spec_document import parse

router = APIRouter(tags=["telemetry"])

_BODY = request_body.described(["ProfileRequest"], {"ten seconds": {"rank": 3, "kind": "cpu", "seconds": 10}})


@router.post(
    "/jobs/{job}/profiles",
    operation_id="profileRank",
    summary="Profile a rank of a running job",
    status_code=202,
    responses=describe(
        "invalid_encoding",
        "invalid_syntax",
        "job_not_found",
        "request_timeout",
        "idempotency_conflict",
        "job_not_running",
        "too_many_profiles",
        "spec_too_large",
        "unsupported_media_type",
        "invalid_request",
        "profile_rank_unknown",
        "profile_not_possible",
    ),
    openapi_extra={"requestBody": _BODY},
)
async def profile(job: str, request: Request, context: In, actor: Actor, key: OrderKey) -> Profile:
    """Take the stacks of a rank's Python processes, or sample them. The event `profile` reports the end, and names the file."""
    form = request_body.format_of(request)
    body = request_body.validated(ProfileRequest, parse(await request_body.read(request), form))
    created = await rank_profiles.create(context.store, job, body, key, actor)
    context.wake_dispatcher()
    return created


@router.get(
    "/jobs/{job}/profiles",
    operation_id="listProfiles",
    summary="List the profiles of a job's ranks",
    responses=describe("job_not_found", "invalid_cursor", "invalid_request"),
)
async def list_profiles(
    job: str,
    context: In,
    before: Annotated[str | None, Query(max_length=80, description="`next` of the previous page.")] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> Profiles:
    """Profiles of a job's ranks, newest first. A job keeps the records of its last 100, and all their files."""
    return await rank_profiles.page(context.store, job, before=before, limit=limit)
