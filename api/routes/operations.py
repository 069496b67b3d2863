"""Operations on a job's checkpoints that the cluster runs: verify, export, pin and unpin."""

from typing import Annotated

from fastapi import APIRouter, Path, Query

from ...service.orders import checkpoint_operations
from ...service.orders.checkpoint_operations import DTYPE, OperationRequest
from ...service.schemas.operation import Operation, Operations
from ...workers.tasks.checkpoint_task import Dtype
from ..http.dependencies import Actor, In, Key
from ..http.job_ids import JobWithPlace
from ..http.problems import describe

router = APIRouter(tags=["checkpoints"])

N = Annotated[int, Path(ge=1, lt=2**53, description="Position of the checkpoint in the job's history.")]
_ASKING = (
    *("job_not_found", "checkpoint_not_found", "checkpoint_deleted", "checkpoint_corrupt"),
    *("idempotency_conflict", "too_many_operations", "invalid_request"),
)


@router.post(
    "/jobs/{job}/checkpoints/{position}/verify",
    operation_id="verifyCheckpoint",
    summary="Verify a checkpoint",
    status_code=202,
    responses=describe(*_ASKING),
)
async def verify(job: JobWithPlace, position: N, context: In, actor: Actor, key: Key = None) -> Operation:
    """Compare every file with its checksum, on the cluster. Poll the operation until it is done or failed."""
    created = await checkpoint_operations.create(context.store, job, OperationRequest("verify", position), key, actor)
    context.wake_dispatcher()
    return created


@router.post(
    "/jobs/{job}/checkpoints/{position}/export",
    operation_id="exportCheckpoint",
    summary="Export a checkpoint",
    status_code=202,
    responses=describe(*_ASKING, "export_underway", "export_unsupported"),
)
async def export(
    job: JobWithPlace,
    position: N,
    context: In,
    actor: Actor,
    dtype: Annotated[Dtype, Query(description="Data type of the written weights.")] = DTYPE,
    key: Key = None,
) -> Operation:
    """Write a Hugging Face folder `export-NNNNNNNN` beside the job's checkpoints, on the cluster. Data types other than fp32 are a
    suffix, such as `-bf16`. An existing export is kept."""
    created = await checkpoint_operations.create(
        context.store, job, OperationRequest("export", position, dtype), key, actor
    )
    context.wake_dispatcher()
    return created


@router.post(
    "/jobs/{job}/checkpoints/{position}/pin",
    operation_id="pinCheckpoint",
    summary="Pin a checkpoint",
    status_code=202,
    responses=describe(*_ASKING, "pin_underway"),
)
async def pin(job: JobWithPlace, position: N, context: In, actor: Actor, key: Key = None) -> Operation:
    """Keep a checkpoint, whatever the job saves later. The cluster writes the pin beside the checkpoint's files."""
    created = await checkpoint_operations.create(context.store, job, OperationRequest("pin", position), key, actor)
    context.wake_dispatcher()
    return created


@router.post(
    "/jobs/{job}/checkpoints/{position}/unpin",
    operation_id="unpinCheckpoint",
    summary="Unpin a checkpoint",
    status_code=202,
    responses=describe(*_ASKING, "pin_underway", "checkpoint_in_models"),
)
async def unpin(job: JobWithPlace, position: N, context: In, actor: Actor, key: Key = None) -> Operation:
    """Let later saves of the job remove the checkpoint. Refused while a version of a model names it."""
    created = await checkpoint_operations.create(context.store, job, OperationRequest("unpin", position), key, actor)
    context.wake_dispatcher()
    return created


@router.get(
    "/jobs/{job}/operations",
    operation_id="listOperations",
    summary="List operations on a job's checkpoints",
    responses=describe("job_not_found", "invalid_cursor", "invalid_request"),
)
async def list_operations(
    job: str,
    context: In,
    before: Annotated[str | None, Query(max_length=80, description="`next` of the previous page.")] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> Operations:
    """Operations of a job, newest first. A job keeps its last 100."""
    return await checkpoint_operations.page(context.store, job, before=before, limit=limit)


@router.get(
    "/jobs/{job}/operations/{operation}",
    operation_id="getOperation",
    summary="Read an operation",
    responses=describe("job_not_found", "operation_not_found", "invalid_request"),
)
async def get_operation(job: str, operation: str, context: In) -> Operation:
    """State and result of an operation."""
    return await checkpoint_operations.one(context.store, job, operation)
