"""A job's history: its states, incidents, checkpoints and plan."""

from typing import Annotated

from fastapi import APIRouter, Query

from ...service.queries import checkpoints as checkpoint_queries
from ...service.queries import history as history_queries
from ...service.queries import incidents as incident_queries
from ...service.queries import timeline as timeline_queries
from ...service.schemas.checkpoint import Checkpoints
from ...service.schemas.history import HistoryPage
from ...service.schemas.incident import Incidents
from ...service.schemas.timeline import Plan, Timeline
from ..http.dependencies import In
from ..http.job_ids import require_job_id_with
from ..http.problems import describe

router = APIRouter(tags=["telemetry"])


@router.get(
    "/jobs/{job}/incidents",
    operation_id="getIncidents",
    summary="Read a job's incidents",
    responses=describe("job_not_found", "invalid_request"),
)
async def incidents(
    job: str,
    context: In,
    after: Annotated[
        int,
        Query(
            ge=0,
            lt=2**53,
            description="Only incidents after this position; ignored with `newest`. Needs the job's id, not its name.",
        ),
    ] = 0,
    newest: Annotated[bool, Query(description="Newest first instead of oldest first.")] = False,
    before: Annotated[
        int | None,
        Query(
            ge=1,
            lt=2**53,
            description="With `newest`: only incidents before this position. Needs the job's id, not its name.",
        ),
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Incidents:
    """Incidents of a job, oldest first, each with its cause, its repair, and a paragraph that sums it up."""
    require_job_id_with(before if newest else after, job)
    if newest:
        return await incident_queries.newest(context.store, job, before=before, limit=limit)
    return await incident_queries.incidents(context.store, job, after=after, limit=limit)


@router.get(
    "/jobs/{job}/timeline",
    operation_id="getTimeline",
    summary="Read a job's timeline",
    responses=describe("job_not_found", "invalid_request"),
)
async def timeline(job: str, context: In) -> Timeline:
    """States of the job over time, by attempt and generation, with incidents, repairs and layout changes. The size is bounded."""
    return await timeline_queries.read(context.store, job)


@router.get(
    "/jobs/{job}/history",
    operation_id="getStory",
    summary="Read a job's history",
    responses=describe("job_not_found", "invalid_request"),
)
async def history_page(
    job: str,
    context: In,
    before: Annotated[
        int | None,
        Query(ge=1, lt=2**53, description="Only events before this position. Needs the job's id, not its name."),
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> HistoryPage:
    """States, checkpoints, incidents, repairs, layout changes and injected faults, newest first."""
    require_job_id_with(before, job)
    return await history_queries.history(context.store, job, before=before, limit=limit)


@router.get(
    "/jobs/{job}/plan",
    operation_id="getPlan",
    summary="Read a job's plan",
    responses=describe("job_not_found", "invalid_request"),
)
async def plan(job: str, context: In) -> Plan:
    """The newest plan that the job's gang reported: sizes of model, step and corpus."""
    return await timeline_queries.plan(context.store, job)


@router.get(
    "/jobs/{job}/checkpoints",
    operation_id="getCheckpoints",
    summary="Read a job's checkpoints",
    responses=describe("job_not_found", "invalid_request"),
)
async def checkpoints(
    job: str,
    context: In,
    before: Annotated[
        int | None,
        Query(ge=1, lt=2**53, description="Only checkpoints before this position. Needs the job's id, not its name."),
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Checkpoints:
    """Complete checkpoints of the job, newest first. Older ones can have been removed by later saves."""
    require_job_id_with(before, job)
    return await checkpoint_queries.checkpoints(context.store, job, before=before, limit=limit)
