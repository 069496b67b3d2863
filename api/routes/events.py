"""What a job tells: live events, metrics, logs."""

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query
from fastapi.responses import StreamingResponse

from ...service import checkpoints as shelf
from ...service import curves as drawn
from ...service import incidents as service
from ...service import jobs, lifeline, log_search
from ...service.log_search import Level, Wanted
from ...service.records import Cursor
from ..context import In
from ..errors import InvalidParameter
from ..models import Checkpoints, Curves, Incidents, LogHits, Logs, Metrics, Plan, Timeline
from ..problems import describe
from ..stream import EventStream

router = APIRouter(tags=["telemetry"])

Rank = Annotated[int | None, Query(ge=0, le=1_000_000, description="Only lines of this rank.")]
Place = Annotated[int, Query(ge=0, lt=2**53)]

_SENT = 'event: step\ndata: {"step": 1, "loss": 5.55}\nid: 3.1.0\n\n'
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "`state`, `plan`, `step`, `eval`, `checkpoint`, `export`, "
        "`incident`, `repair`, `traced`, `summary`, `log`, `ranks`; last `end`.",
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
    ranks: Annotated[bool, Query(description="Also `ranks` events: the newest sample of what each rank does.")] = False,
    last_event_id: Annotated[str | None, Header(max_length=80, description="Goes before `after`.")] = None,
) -> EventStream:
    """Server-sent events from the job's beginning, or after a cursor, to its end. Each `id` is a cursor."""
    cursor = Cursor.parse(last_event_id or after or str(Cursor()))
    found = await jobs.get_job(context.store, job)
    read = partial(jobs.tail, context.store, found.id, with_logs=logs, rank=rank, with_ranks=ranks)
    return EventStream(context.hub, found.id, read, cursor, (logs, rank, ranks))


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
    "/jobs/{job}/curves",
    operation_id="getCurves",
    summary="Read a job's curves",
    responses=describe("job_not_found", "invalid_request"),
)
async def curves(
    job: str,
    context: In,
    names: Annotated[str, Query(max_length=200, description=f"Of {', '.join(drawn.SERIES)}; between commas.")] = "loss",
    low: Annotated[int, Query(alias="from", ge=1, lt=2**53, description="The first step.")] = 1,
    high: Annotated[
        int | None, Query(alias="to", ge=1, lt=2**53, description="The last step; left out: the newest.")
    ] = None,
    buckets: Annotated[int, Query(ge=2, le=drawn.MOST)] = 400,
) -> Curves:
    """Numbers of a range of steps in at most `buckets` buckets, each with its extremes, so that a spike among a million steps stays."""
    read = await drawn.curves(context.store, job, _series(names), low=low, high=high, buckets=buckets)
    return Curves.model_validate(read)


def _series(names: str) -> list[str]:
    wanted = [name.strip() for name in names.split(",")]
    unknown = next((name for name in wanted if name not in drawn.SERIES), None)
    if unknown is not None:
        remedy = f"Name some of {', '.join(drawn.SERIES)}, between commas."
        raise InvalidParameter(f"There is no series {unknown[:80]!r}.", field="names", remedy=remedy)
    return wanted


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
    around: Annotated[
        int | None, Query(ge=1, lt=2**53, description="Lines about this place instead: half of `limit` before it.")
    ] = None,
) -> Logs:
    """Log lines in order, of one rank or all. Ask again with `after=next` for those that follow."""
    if around is not None:
        about = await log_search.around(context.store, job, around, rank=rank, limit=limit)
        return Logs.model_validate(about)
    found = await jobs.get_job(context.store, job)
    return Logs.model_validate(await jobs.logs(context.store, found.id, rank=rank, after=after, limit=limit, tail=tail))


def _wanted(
    text: Annotated[str, Query(max_length=255, description="Found in the line, in upper or lower case.")] = "",
    rank: Rank = None,
    level: Annotated[Level | None, Query(description="Lines that name an error; or a warning or an error.")] = None,
    since: Annotated[float | None, Query(ge=0, allow_inf_nan=False, description="Unix seconds.")] = None,
    until: Annotated[float | None, Query(ge=0, allow_inf_nan=False, description="Unix seconds.")] = None,
) -> Wanted:
    return Wanted(text, rank, level, since, until)


@router.get(
    "/jobs/{job}/logs/search",
    operation_id="searchLogs",
    summary="Search a job's logs",
    responses=describe("job_not_found", "invalid_request"),
)
async def search_logs(
    job: str,
    context: In,
    wanted: Annotated[Wanted, Depends(_wanted)],
    after: Annotated[Place, Query(description="Look on after this place.")] = 0,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> LogHits:
    """Look through the next 20,000 lines, or until `limit` are found. `looked` says how far that was."""
    return LogHits.model_validate(await log_search.search(context.store, job, wanted, after=after, limit=limit))


@router.get(
    "/jobs/{job}/incidents",
    operation_id="getIncidents",
    summary="Read a job's incidents",
    responses=describe("job_not_found", "invalid_request"),
)
async def incidents(
    job: str,
    context: In,
    after: Annotated[Place, Query(description="Only incidents after this place; not of `newest`.")] = 0,
    newest: Annotated[bool, Query(description="The newest first.")] = False,
    before: Annotated[
        int | None, Query(ge=1, lt=2**53, description="Of `newest`: only those before this place.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Incidents:
    """What went wrong, oldest first, each with its cause, what was done about it, and one paragraph that says so."""
    if newest:
        return Incidents.model_validate(await service.newest(context.store, job, before=before, limit=limit))
    return Incidents.model_validate(await service.incidents(context.store, job, after=after, limit=limit))


@router.get(
    "/jobs/{job}/timeline",
    operation_id="getTimeline",
    summary="Read a job's timeline",
    responses=describe("job_not_found", "invalid_request"),
)
async def timeline(job: str, context: In) -> Timeline:
    """In which state the job was when, by attempt and generation, with its incidents, repairs and changes of layout; bounded."""
    return Timeline.model_validate(await lifeline.lifeline(context.store, job))


@router.get(
    "/jobs/{job}/plan",
    operation_id="getPlan",
    summary="Read a job's plan",
    responses=describe("job_not_found", "invalid_request"),
)
async def plan(job: str, context: In) -> Plan:
    """The newest plan that the job's gang told: sizes of model, step and corpus."""
    return Plan.model_validate(await lifeline.plan(context.store, job))


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
