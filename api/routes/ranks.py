"""What happens inside a distributed step: each rank's times and memory."""

from typing import Annotated

from fastapi import APIRouter, Query

from ...service import ranks as service
from ..context import In
from ..models import Ranks
from ..problems import describe

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
    return Ranks.model_validate(await service.samples(context.store, job, before=before, limit=limit))
