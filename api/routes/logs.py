"""A job's log lines: in order, and those that match."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request

from ...service.queries import jobs
from ...service.queries import logs as lines
from ...service.queries.logs import Level, Wanted
from ...service.schemas.log import LogHits, Logs
from ..http.dependencies import In
from ..http.disconnect import while_connected
from ..http.problems import describe

router = APIRouter(tags=["telemetry"])

Rank = Annotated[int | None, Query(ge=0, le=1_000_000, description="Only lines of this rank.")]
Place = Annotated[int, Query(ge=0, lt=2**53)]


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
        return await lines.around(context.store, job, around, rank=rank, limit=limit)
    found = await jobs.get_job(context.store, job)
    return await lines.page(context.store, found.id, rank=rank, after=after, limit=limit, tail=tail)


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
    responses=describe("job_not_found", "invalid_request", "too_many_searches", "search_too_slow"),
)
async def search_logs(
    request: Request,
    job: str,
    context: In,
    wanted: Annotated[Wanted, Depends(_wanted)],
    after: Annotated[Place, Query(description="Look on after this place.")] = 0,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> LogHits:
    """Look through the next 20,000 lines, or 32 MiB, or for half a second, or until `limit` are found. `looked` says how far that was."""
    searching = lines.search(context.store, job, wanted, after=after, limit=limit)
    return await while_connected(request, searching)
