"""What a job tells: live events, metrics, logs."""

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse

from ...service import checkpoints as shelf
from ...service import incidents as service
from ...service import jobs
from ...service.records import Cursor
from ..context import In
from ..models import Checkpoints, Incidents, Logs, Metrics
from ..problems import describe
from ..stream import EventStream

router = APIRouter(tags=["telemetry"])

Rank = Annotated[int | None, Query(ge=0, le=1_000_000, description="Only lines of this rank.")]
Place = Annotated[int, Query(ge=0, lt=2**53)]

_SENT = 'event: step\ndata: {"step": 1, "loss": 5.55}\nid: 3.1.0\n\n'
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "`state`, `plan`, `step`, `eval`, `checkpoint`, `export`, `incident`, `repair`, `traced`, "
        "`summary`, `log`; last `end`.",
        "content": {"text/event-stream": {"schema": {"type": "string"}, "example": _SENT}},
    },
    **describe("job_not_found", "invalid_cursor", "invalid_request"),
}


@router.get(
    "/jobs/{job}/events",
    operation_id="watchJob",
    summary="Watch a job",
    response_class=StreamingResponse,
    responses=_STREAM,
)
async def watch(
    job: str,
    context: In,
    after: Annotated[str | None, Query(max_length=80, description="Cursor of the last event seen.")] = None,
    logs: Annotated[bool, Query(description="Also `log` events, one per line.")] = False,
    rank: Rank = None,
    last_event_id: Annotated[str | None, Header(max_length=80, description="Goes before `after`.")] = None,
) -> EventStream:
    """Server-sent events from the job's beginning, or after a cursor, to its end. Each `id` is a cursor."""
    cursor = Cursor.parse(last_event_id or after or str(Cursor()))
    found = await jobs.get_job(context.store, job)
    read = partial(jobs.tail, context.store, found.id, with_logs=logs, rank=rank)
    return EventStream(context.hub, found.id, read, cursor, (logs, rank))


@router.get(
    "/jobs/{job}/metrics",
    operation_id="getMetrics",
    summary="Read a job's metrics",
    responses=describe("job_not_found", "invalid_request"),
)
async def metrics(
    job: str,
    context: In,
    since: Annotated[Place, Query(description="Only steps after this one.")] = 0,
    max_points: Annotated[int, Query(ge=2, le=10_000)] = 1000,
) -> Metrics:
    """Step records. More than `max_points` are thinned, keeping each bucket's lowest and highest loss."""
    found = await jobs.get_job(context.store, job)
    return Metrics.model_validate(await jobs.metrics(context.store, found.id, since=since, max_points=max_points))


@router.get(
    "/jobs/{job}/logs",
    operation_id="getLogs",
    summary="Read a job's logs",
    responses=describe("job_not_found", "invalid_request"),
)
async def logs(
    job: str,
    context: In,
    rank: Rank = None,
    after: Annotated[Place, Query(description="Only lines after this place.")] = 0,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    tail: Annotated[int | None, Query(ge=0, le=10_000, description="The last so many lines instead.")] = None,
) -> Logs:
    """Log lines in order, of one rank or all. Ask again with `after=next` for those that follow."""
    found = await jobs.get_job(context.store, job)
    return Logs.model_validate(await jobs.logs(context.store, found.id, rank=rank, after=after, limit=limit, tail=tail))


@router.get(
    "/jobs/{job}/incidents",
    operation_id="getIncidents",
    summary="Read a job's incidents",
    responses=describe("job_not_found", "invalid_request"),
)
async def incidents(
    job: str,
    context: In,
    after: Annotated[Place, Query(description="Only incidents after this place.")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Incidents:
    """What went wrong, oldest first, each with its cause, what was done about it, and one paragraph that says so."""
    return Incidents.model_validate(await service.incidents(context.store, job, after=after, limit=limit))


@router.get(
    "/jobs/{job}/checkpoints",
    operation_id="getCheckpoints",
    summary="Read a job's checkpoints",
    responses=describe("job_not_found", "invalid_request"),
)
async def checkpoints(
    job: str,
    context: In,
    before: Annotated[int | None, Query(ge=1, lt=2**53, description="Only those told before this place.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Checkpoints:
    """Complete checkpoints that the job told of, newest first; older ones may have been removed to make room."""
    return Checkpoints.model_validate(await shelf.checkpoints(context.store, job, before=before, limit=limit))
