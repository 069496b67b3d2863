"""A job's metrics by step."""

from typing import Annotated

from fastapi import APIRouter, Query

from ...service.queries import curves as drawn
from ...service.queries import jobs, steps
from ...service.queries import logged_metrics as logged
from ...service.schemas.curve import Curves
from ...service.schemas.logged_metric import LoggedCurves, LoggedMetrics, LoggedNames, LoggedValues
from ...service.schemas.step import Metrics
from ..errors import InvalidParameter
from ..http.dependencies import In
from ..http.problems import describe

router = APIRouter(tags=["telemetry"])

Ids = Annotated[
    list[Annotated[str, Query(max_length=63)]],
    Query(min_length=1, max_length=logged.MOST_JOBS, description="Id of a job. Repeat it for several jobs."),
]
Name = Annotated[str, Query(max_length=200)]


@router.get(
    "/jobs/{job}/metrics",
    operation_id="getMetrics",
    summary="Read a job's metrics",
    responses=describe("job_not_found", "invalid_request"),
)
async def metrics(
    job: str,
    context: In,
    since: Annotated[int, Query(ge=0, lt=2**53, description="Only steps after this one.")] = 0,
    max_points: Annotated[int, Query(ge=2, le=10_000)] = 1000,
) -> Metrics:
    """Step records. More than `max_points` are thinned; each bucket keeps its lowest and highest loss."""
    found = await jobs.get_job(context.store, job)
    return await steps.metrics(context.store, found.id, since=since, max_points=max_points)


@router.get(
    "/jobs/{job}/curves",
    operation_id="getCurves",
    summary="Read a job's curves",
    responses=describe("job_not_found", "invalid_request"),
)
async def curves(
    job: str,
    context: In,
    names: Annotated[
        str, Query(max_length=200, description=f"Names separated by commas, of {', '.join(drawn.SERIES)}.")
    ] = "loss",
    low: Annotated[int, Query(alias="from", ge=1, lt=2**53, description="First step.")] = 1,
    high: Annotated[
        int | None, Query(alias="to", ge=1, lt=2**53, description="Last step; the newest one by default.")
    ] = None,
    buckets: Annotated[int, Query(ge=2, le=drawn.MOST)] = 400,
) -> Curves:
    """Metrics over a range of steps in at most `buckets` buckets. Each bucket keeps its extremes, so no spike is lost."""
    return await drawn.curves(context.store, job, _series(names), low=low, high=high, buckets=buckets)


def _series(names: str) -> list[str]:
    wanted = [name.strip() for name in names.split(",")]
    unknown = next((name for name in wanted if name not in drawn.SERIES), None)
    if unknown is not None:
        remedy = f"Name some of {', '.join(drawn.SERIES)}, between commas."
        raise InvalidParameter(f"There is no series {unknown[:80]!r}.", field="names", remedy=remedy)
    return wanted


@router.get(
    "/jobs/{job}/logged-metrics",
    operation_id="listLoggedMetrics",
    summary="List the metrics that a job's program logged",
    responses=describe("job_not_found", "invalid_request"),
)
async def logged_metrics(
    job: str,
    context: In,
    text: Annotated[
        str | None, Query(max_length=200, description="Only metrics whose name contains this text.")
    ] = None,
    after: Annotated[str | None, Query(max_length=200, description="`next` of the previous page.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> LoggedMetrics:
    """Metrics that a program of the user's own logged by `shardyard.log`, in order of their names, each with its newest value."""
    return await logged.page(context.store, job, text=text, after=after, limit=limit)


@router.get(
    "/jobs/{job}/logged-curves",
    operation_id="getLoggedCurves",
    summary="Read curves that a job's program logged",
    responses=describe("job_not_found", "invalid_request"),
)
async def logged_curves(
    job: str,
    context: In,
    name: Annotated[
        list[Name],
        Query(min_length=1, max_length=logged.MOST_CURVES, description="Name of a metric. Repeat it for several."),
    ],
    low: Annotated[int, Query(alias="from", ge=0, lt=2**53, description="First step.")] = 0,
    high: Annotated[
        int | None, Query(alias="to", ge=0, lt=2**53, description="Last step; the newest one by default.")
    ] = None,
    buckets: Annotated[int, Query(ge=2, le=logged.MOST_BUCKETS)] = 400,
) -> LoggedCurves:
    """Logged metrics over a range of steps, each in at most `buckets` buckets with their extremes, so that no spike is lost."""
    return await logged.curves(context.store, job, name, low=low, high=high, buckets=buckets)


@router.get(
    "/logged-names",
    operation_id="listLoggedNames",
    summary="List the names of metrics that jobs logged",
    responses=describe("invalid_request"),
)
async def logged_names(
    context: In,
    job: Ids,
    text: Annotated[str | None, Query(max_length=200, description="Only names that contain this text.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> LoggedNames:
    """Names of the metrics that any of these jobs logged, those of the most jobs first. Unknown jobs have none."""
    return await logged.names(context.store, job, text=text, limit=limit)


@router.get(
    "/logged-values",
    operation_id="listLoggedValues",
    summary="Read the newest values of metrics that jobs logged",
    responses=describe("invalid_request"),
)
async def logged_values(
    context: In,
    job: Ids,
    name: Annotated[
        list[Name],
        Query(min_length=1, max_length=logged.MOST_VALUES, description="Name of a metric. Repeat it for several."),
    ],
) -> LoggedValues:
    """Newest values of logged metrics of many jobs, for a table. Unknown jobs, and jobs that logged none of them, are left out."""
    return await logged.newest(context.store, job, name)
