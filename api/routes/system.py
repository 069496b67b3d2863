"""What a job's nodes and ranks use, over time."""

from typing import Annotated

from fastapi import APIRouter, Query

from ...service.queries import system as drawn
from ...service.schemas.system import SystemCurves
from ...workers.messages.system_metrics import UNITS
from ..errors import InvalidParameter
from ..http.dependencies import In
from ..http.problems import describe

router = APIRouter(tags=["telemetry"])


@router.get(
    "/jobs/{job}/system",
    operation_id="getSystem",
    summary="Read what a job's nodes and ranks use",
    responses=describe("job_not_found", "invalid_request", "invalid_cursor"),
)
async def system(
    job: str,
    context: In,
    name: Annotated[str, Query(max_length=80, description=f"A metric, of {', '.join(UNITS)}.")] = "rank/cpu",
    since: Annotated[
        float | None,
        Query(
            ge=0, lt=2**40, allow_inf_nan=False, description="First time, in unix seconds; the first sample by default."
        ),
    ] = None,
    until: Annotated[
        float | None,
        Query(
            ge=0, lt=2**40, allow_inf_nan=False, description="Last time, in unix seconds; the newest sample by default."
        ),
    ] = None,
    after: Annotated[str | None, Query(max_length=80, description="`next` of the previous page.")] = None,
) -> SystemCurves:
    """One system metric of 24 nodes or ranks, in at most 360 buckets of time with their extremes. Samples do not count as progress."""
    if name not in UNITS:
        remedy = f"Name one of {', '.join(UNITS)}."
        raise InvalidParameter(f"There is no system metric {name[:80]!r}.", field="name", remedy=remedy)
    return await drawn.curves(context.store, job, name, since=since, until=until, after=after)
