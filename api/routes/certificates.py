"""Certificates of jobs: attached, read, and shown as a page."""

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from ...service.certificate_signature import fingerprint
from ...service.jobs import certificate as attaching
from ...service.queries import certificates
from ...service.schemas.certificate import Certificate
from ...service.schemas.job import Job
from ..certificate_page import page
from ..http import request_body
from ..http.dependencies import Actor, In
from ..http.problems import describe
from ..spec_document import parse

router = APIRouter(tags=["jobs"])

_BODY = request_body.described(["Certificate"], {})
#: The page has its style in itself, and nothing else that a browser would run or load.
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; sandbox",
    "X-Content-Type-Options": "nosniff",
}


@router.put(
    "/jobs/{job}/certificate",
    operation_id="attachCertificate",
    summary="Attach a certificate to a job",
    responses=describe(
        *("job_not_found", "invalid_certificate", "certificate_mismatch", "invalid_encoding", "invalid_syntax"),
        *("request_timeout", "spec_too_large", "unsupported_media_type", "invalid_request"),
    ),
    openapi_extra={"requestBody": _BODY},
)
async def attach(job: str, request: Request, context: In, actor: Actor) -> Job:
    """Store what `shardyard verify` found of the job's own spec, in place of an earlier certificate. Repeating is harmless."""
    form = request_body.format_of(request)
    given = request_body.validated(Certificate, parse(await request_body.read(request), form))
    return await attaching.attach(context.store, job, given, actor)


@router.get(
    "/jobs/{job}/certificate",
    operation_id="getCertificate",
    summary="Read a job's certificate",
    responses=describe("job_not_found", "certificate_not_found", "invalid_request"),
)
async def get_certificate(job: str, context: In) -> Certificate:
    """A training of the job's spec and the same in one process, number by number, signed."""
    return await certificates.of_job(context.store, job)


@router.get(
    "/jobs/{job}/certificate/page",
    operation_id="showCertificate",
    summary="Show a job's certificate as a page",
    response_class=HTMLResponse,
    responses=describe("job_not_found", "certificate_not_found", "invalid_request"),
)
async def show(job: str, context: In) -> HTMLResponse:
    """The certificate for people, as HTML."""
    found = await certificates.of_job(context.store, job)
    return HTMLResponse(page(found, fingerprint(found)), headers=_HEADERS)
