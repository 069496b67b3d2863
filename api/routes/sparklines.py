"""Loss sparklines of many jobs, for the list of jobs."""

from typing import Annotated

from fastapi import APIRouter, Query

from ...service.queries import loss_sparklines
from ...service.schemas.sparkline import LossSparklines
from ..http.dependencies import In
from ..http.problems import describe

router = APIRouter(tags=["telemetry"])

Ids = Annotated[
    list[Annotated[str, Query(max_length=63)]],
    Query(max_length=200, description="Id of a job. Repeat it for several jobs."),
]


@router.get(
    "/sparklines",
    operation_id="listSparklines",
    summary="Read loss sparklines of jobs",
    responses=describe("invalid_request"),
)
async def list_sparklines(context: In, job: Ids) -> LossSparklines:
    """Training loss of each job in at most 64 buckets. Unknown jobs and jobs without a step are left out."""
    return await loss_sparklines.of_jobs(context.store, job)
