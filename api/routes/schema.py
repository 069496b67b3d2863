"""The job spec's JSON Schema, for editors and programs."""

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from ..remedies import job_schema

router = APIRouter(tags=["service"])


class SchemaResponse(JSONResponse):
    media_type = "application/schema+json"


@router.get(
    "/schema/job", operation_id="getJobSchema", summary="JSON Schema of a job spec", response_class=SchemaResponse
)
async def schema() -> SchemaResponse:
    """JSON Schema (2020-12) of what `POST /v1/jobs` takes."""
    return SchemaResponse(job_schema())
