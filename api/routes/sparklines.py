"""The loss outlines of many jobs at once, each small: what a list of jobs shows beside them."""

from typing import Annotated

from fastapi import APIRouter, Query

from ...service.queries import loss_sparklines
from ...service.schemas.sparkline import Outlines
from ..http.dependencies import In
from ..http.problems import describe

router = APIRouter(tags=["telemetry"])

Ids = Annotated[list[Annotated[str, Query(max_length=63)]], Query(max_length=200, description="Ids; repeated.")]


@router.get(
    "/outlines", operation_id="listOutlines", summary="Read jobs' loss outlines", responses=describe("invalid_request")
)
async def list_outlines(context: In, job: Ids) -> Outlines:
    """The training loss of each job in at most 64 buckets; jobs that are not there, or told no step yet, are left out."""
    return await loss_sparklines.of_jobs(context.store, job)
