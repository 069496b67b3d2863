"""What happens inside a distributed step: each rank's times and memory, what it holds and sends."""

from typing import Annotated

from fastapi import APIRouter, Query

from ...service.queries import ranks as service
from ...service.queries import resources as formulas
from ...service.schemas.rank import Ranks
from ...service.schemas.resource import JobResources
from ..http.dependencies import In
from ..http.problems import describe

router = APIRouter(tags=["telemetry"])


@router.get(
    "/jobs/{job}/ranks",
    operation_id="getRanks",
    summary="Read what each rank does",
    responses=describe("job_not_found", "invalid_request"),
)
async def ranks(
    job: str,
    context: In,
    before: Annotated[int | None, Query(ge=1, lt=2**53, description="Only samples before this place.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Ranks:
    """Each rank's step, own work, waiting and memory every few seconds, newest first: as many samples as fit into 300 kB."""
    return await service.samples(context.store, job, before=before, limit=limit)


@router.get(
    "/jobs/{job}/resources",
    operation_id="getResources",
    summary="Read what a job holds and sends",
    responses=describe("job_not_found", "invalid_request"),
)
async def resources(job: str, context: In) -> JobResources:
    """Memory per rank and bytes per mesh axis and collective: the formulas for the job's layout beside what its newest probe measured."""
    return await formulas.resources(context.store, job, context.files)
