"""Commands beside the ranks of running jobs, if they are enabled on this server."""

from typing import Annotated

from fastapi import APIRouter, Query, Request

from ...service.orders import rank_commands
from ...service.schemas.exec import Exec, ExecRequest, Execs
from ..http import request_body
from ..http.dependencies import Actor, In
from ..http.job_ids import OrderKey
from ..http.problems import describe
from ..spec_document import parse

router = APIRouter(tags=["telemetry"])

_BODY = request_body.described(["ExecRequest"], {"the GPUs": {"rank": 3, "command": ["nvidia-smi"]}})


@router.post(
    "/jobs/{job}/execs",
    operation_id="execCommand",
    summary="Run a command beside a rank of a running job",
    status_code=202,
    responses=describe(
        "invalid_encoding",
        "invalid_syntax",
        "exec_disabled",
        "job_not_found",
        "request_timeout",
        "idempotency_conflict",
        "job_not_running",
        "exec_open",
        "spec_too_large",
        "unsupported_media_type",
        "invalid_request",
        "command_too_long",
        "profile_rank_unknown",
    ),
    openapi_extra={"requestBody": _BODY},
)
async def execute(job: str, request: Request, context: In, actor: Actor, key: OrderKey) -> Exec:
    """Run a command once, in the rank's working folder and with its variables. Its output is the stream `exec` of the rank's log; the
    event `exec` reports its end. Needs `SHARDYARD_EXEC`."""
    form = request_body.format_of(request)
    body = request_body.validated(ExecRequest, parse(await request_body.read(request), form))
    created = await rank_commands.create(context.store, context.settings, job, body, key, actor)
    context.wake_dispatcher()
    return created


@router.get(
    "/jobs/{job}/execs",
    operation_id="listExecs",
    summary="List the commands beside a job's ranks",
    responses=describe("job_not_found", "invalid_cursor", "invalid_request"),
)
async def list_execs(
    job: str,
    context: In,
    before: Annotated[str | None, Query(max_length=80, description="`next` of the previous page.")] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> Execs:
    """Commands beside a job's ranks, newest first, with who ran them. A job keeps the records of its last 1,000."""
    return await rank_commands.page(context.store, job, before=before, limit=limit)
