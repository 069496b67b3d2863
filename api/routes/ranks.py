"""Each rank's times, memory and traffic."""

from typing import Annotated

from fastapi import APIRouter, Query

from ...service.jobs.memory_plan import device_facts
from ...service.queries import ranks as service
from ...service.queries import resources as formulas
from ...service.schemas.rank import RankMetricsPage
from ...service.schemas.resource import ResourceReport
from ..http.dependencies import In
from ..http.job_ids import require_job_id_with
from ..http.problems import describe

router = APIRouter(tags=["telemetry"])


@router.get(
    "/jobs/{job}/ranks",
    operation_id="getRanks",
    summary="Read metrics of each rank",
    responses=describe("job_not_found", "invalid_request"),
)
async def ranks(
    job: str,
    context: In,
    before: Annotated[
        int | None,
        Query(ge=1, lt=2**53, description="Only samples before this position. Needs the job's id, not its name."),
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> RankMetricsPage:
    """Step time, busy time, wait time and memory of each rank every few seconds, newest first. A response has at most 300 kB."""
    require_job_id_with(before, job)
    return await service.samples(context.store, job, before=before, limit=limit)


@router.get(
    "/jobs/{job}/resources",
    operation_id="getResources",
    summary="Read memory and communication of a job",
    responses=describe("job_not_found", "invalid_request"),
)
async def resources(job: str, context: In) -> ResourceReport:
    """Memory per rank, and bytes per mesh axis and collective: by the cost model, and as the newest probe measured them."""
    return await formulas.resources(context.store, context.settings, job, context.files, device_facts)
