"""A job's log lines: in order, and by search."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request

from ...service.queries import jobs
from ...service.queries import logs as lines
from ...service.queries.logs import Level, LogFilter, Stream
from ...service.schemas.log import Logs, LogSearchResult
from ..http.dependencies import In
from ..http.disconnect import while_connected
from ..http.job_ids import require_job_id_with
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
    after: Annotated[Place, Query(description="Only lines after this position. Needs the job's id, not its name.")] = 0,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    tail: Annotated[
        int | None, Query(ge=0, le=10_000, description="Return this many lines from the end of the log instead.")
    ] = None,
    around: Annotated[
        int | None,
        Query(
            ge=1,
            lt=2**53,
            description="Return lines around this position instead, half of `limit` before it. Needs the job's id, not its name.",
        ),
    ] = None,
) -> Logs:
    """Log lines in order, of one rank or of all. Request the following ones with `after=next`, and the job's id."""
    require_job_id_with(around or after, job)
    if around is not None:
        return await lines.around(context.store, job, around, rank=rank, limit=limit)
    found = await jobs.get_job(context.store, job)
    return await lines.page(context.store, found.id, rank=rank, after=after, limit=limit, tail=tail)


def _period(
    since: Annotated[
        float | None, Query(ge=0, allow_inf_nan=False, description="Earliest time, in Unix seconds.")
    ] = None,
    until: Annotated[
        float | None, Query(ge=0, allow_inf_nan=False, description="Latest time, in Unix seconds.")
    ] = None,
) -> tuple[float | None, float | None]:
    return since, until


def _filter(
    period: Annotated[tuple[float | None, float | None], Depends(_period)],
    text: Annotated[str, Query(max_length=255, description="Text that a line must contain; case is ignored.")] = "",
    regex: Annotated[
        bool,
        Query(description="`text` is a regular expression in RE2's syntax, which may match anywhere in a line."),
    ] = False,
    rank: Rank = None,
    level: Annotated[
        Level | None, Query(description="`error`: lines with an error. `warning`: lines with a warning or an error.")
    ] = None,
    stream: Annotated[Stream | None, Query(description="Only lines of this stream.")] = None,
) -> LogFilter:
    return LogFilter(text, rank, level, *period, stream, regex)


@router.get(
    "/jobs/{job}/logs/search",
    operation_id="searchLogs",
    summary="Search a job's logs",
    responses=describe("job_not_found", "invalid_request", "invalid_pattern", "too_many_searches", "search_too_slow"),
)
async def search_logs(
    request: Request,
    job: str,
    context: In,
    wanted: Annotated[LogFilter, Depends(_filter)],
    after: Annotated[
        Place, Query(description="Continue the scan after this position. Needs the job's id, not its name.")
    ] = 0,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> LogSearchResult:
    """Scan at most 20,000 lines, 32 MiB or half a second of the log, up to `limit` matches. `scanned_to` is where the scan ended."""
    require_job_id_with(after, job)
    searching = lines.search(context.store, job, wanted, after=after, limit=limit)
    return await while_connected(request, searching)
