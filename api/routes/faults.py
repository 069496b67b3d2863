"""Fault injection into running jobs, if it is enabled on this server."""

from fastapi import APIRouter, Request

from ...service.orders import fault_injection
from ...service.schemas.fault import Fault, FaultRequest
from ..http import request_body
from ..http.dependencies import Actor, In
from ..http.job_ids import OrderKey
from ..http.problems import describe
from ..spec_document import parse

router = APIRouter(tags=["faults"])

_BODY = request_body.described(["FaultRequest"], {"a rank's death": {"kind": "kill-rank", "rank": 2}})


@router.post(
    "/jobs/{job}/faults",
    operation_id="injectFault",
    summary="Inject a fault into a running job",
    status_code=202,
    responses=describe(
        "invalid_encoding",
        "invalid_syntax",
        "faults_disabled",
        "job_not_found",
        "request_timeout",
        "idempotency_conflict",
        "job_not_running",
        "spec_too_large",
        "unsupported_media_type",
        "invalid_request",
        "invalid_fault",
    ),
    openapi_extra={"requestBody": _BODY},
)
async def inject(job: str, request: Request, context: In, actor: Actor, key: OrderKey) -> Fault:
    """Request a fault. It is injected once; the event `fault` reports it. Needs `SHARDYARD_FAULT_INJECTION`."""
    form = request_body.format_of(request)
    body = request_body.validated(FaultRequest, parse(await request_body.read(request), form))
    created = await fault_injection.create(context.store, context.settings, job, body, key, actor)
    context.wake_dispatcher()
    return created
