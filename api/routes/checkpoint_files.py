"""The files of a job's checkpoints: list them, and send one of them, whole or a range of its bytes."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response, StreamingResponse

from ...service.queries import checkpoint_files
from ...service.schemas.checkpoint import CheckpointFiles
from ...workers.messages.artifact import OTHER
from ..http import file_download
from ..http.dependencies import In
from ..http.file_download import Range
from ..http.problems import describe

router = APIRouter(tags=["checkpoints"])

Step = Annotated[int, Path(ge=0, lt=2**53, description="Step of the checkpoint.")]
_CODES = (
    "job_not_found",
    "checkpoint_not_found",
    "checkpoint_deleted",
    "checkpoint_corrupt",
    "checkpoint_storage_failed",
)


@router.get(
    "/jobs/{job}/checkpoints/{step}/files",
    operation_id="listCheckpointFiles",
    summary="List the files of a checkpoint",
    responses=describe(*_CODES, "invalid_request"),
)
async def list_files(
    job: str,
    step: Step,
    context: In,
    after: Annotated[str | None, Query(max_length=5000, description="`next` of the previous page.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> CheckpointFiles:
    """Files with sizes and checksums, in order of their paths. A training job's have names; a program's have its own paths."""
    return await checkpoint_files.page(context.store, context.reads, job, step, after=after, limit=limit)


@router.get(
    "/jobs/{job}/checkpoints/{step}/files/{path:path}",
    operation_id="downloadCheckpointFile",
    summary="Download a file of a checkpoint",
    response_class=StreamingResponse,
    responses={
        **file_download.RESPONSES,
        **describe(*_CODES, "checkpoint_file_not_found", "range_not_satisfiable", "invalid_request"),
    },
)
async def download(request: Request, job: str, step: Step, path: str, context: In, asked: Range = None) -> Response:
    """The file's bytes. `ETag` is the SHA-256."""
    found = await checkpoint_files.find(context.store, context.reads, job, step, path)
    return await file_download.answer(request, found, path.rpartition("/")[2], OTHER, asked=asked)
