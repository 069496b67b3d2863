"""Sweeps: submit, list, read, cancel."""

import asyncio
import hashlib
import json
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response

from ...service.jobs import submit as jobs
from ...service.queries import sweeps
from ...service.schemas.sweep import SweepDetail, Sweeps, SweepTrials
from ...service.spec import AnySpec
from ...service.sweeps import submit as submitting
from ...service.sweeps.request import SweepRequest
from ..errors import SHORTER_SPEC
from ..http import request_body
from ..http.dependencies import Actor, In, Key
from ..http.problems import describe
from ..http.sweep_document import read_sweep
from ..spec_document import Format, parse
from .jobs import OF_THE_SPEC

router = APIRouter(tags=["sweeps"])

_EXAMPLE: Final[dict[str, Any]] = {
    "name": "tune",
    "train": {"steps": 300, "global_batch": 16},
    "sweep": {
        "parameters": {"train.optimizer.lr": {"min": 1e-4, "max": 1e-2, "scale": "log"}},
        "trials": 16,
        "asha": {"min_steps": 30},
    },
}
_BODY = request_body.described(["SweepOfTraining", "SweepOfCommand"], {"asha": _EXAMPLE})


@router.post(
    "/sweeps",
    operation_id="submitSweep",
    summary="Submit a sweep",
    status_code=201,
    response_model=SweepDetail,
    responses={
        200: {"model": SweepDetail, "description": "The sweep already existed: same key, same body."},
        **describe(*OF_THE_SPEC, "idempotency_conflict"),
    },
    openapi_extra={"requestBody": _BODY},
)
async def submit(
    request: Request, answer: Response, context: In, actor: Actor, idempotency_key: Key = None
) -> SweepDetail:
    """Check a job spec with a part `sweep` (YAML or JSON), and begin its trials. A refused one stores nothing."""
    form = request_body.format_of(request)
    content = await request_body.read(request, remedy=SHORTER_SPEC)
    wanted, first, digest = await asyncio.to_thread(_read, content, form)
    found, created = await submitting.submit(
        context.store,
        context.settings,
        wanted,
        first,
        jobs.Request(idempotency_key, digest, actor),
        context.files,
    )
    answer.status_code = 201 if created else 200
    answer.headers["Location"] = f"/v1/sweeps/{found.id}"
    return found


@router.get(
    "/sweeps",
    operation_id="listSweeps",
    summary="List sweeps",
    responses=describe("invalid_cursor", "invalid_request"),
)
async def list_sweeps(
    context: In,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    cursor: Annotated[str | None, Query(max_length=255, description="`next` of the previous page.")] = None,
) -> Sweeps:
    """One page of sweeps, newest first."""
    return await sweeps.list_sweeps(context.store, cursor, limit)


@router.get(
    "/sweeps/{sweep}",
    operation_id="getSweep",
    summary="Read a sweep",
    responses=describe("sweep_not_found", "invalid_request"),
)
async def get_sweep(sweep: str, context: In) -> SweepDetail:
    """A sweep by its id, or the newest of that name."""
    return await sweeps.get_sweep(context.store, sweep)


@router.get(
    "/sweeps/{sweep}/trials",
    operation_id="listTrials",
    summary="List the trials of a sweep",
    responses=describe("sweep_not_found", "invalid_request"),
)
async def trials(
    sweep: str,
    context: In,
    since: Annotated[
        float | None,
        Query(ge=0, le=1e12, description="`as_of` of an earlier answer: only trials that may have changed since then."),
    ] = None,
) -> SweepTrials:
    """The trials of a sweep, by number; there are at most 1,000."""
    return await sweeps.trials(context.store, sweep, since)


@router.post(
    "/sweeps/{sweep}/cancel",
    operation_id="cancelSweep",
    summary="Cancel a sweep",
    status_code=202,
    responses=describe("sweep_not_found", "sweep_ended", "invalid_request"),
)
async def cancel(sweep: str, context: In) -> SweepDetail:
    """Cancel all trials of a sweep that have not ended. Repeating is harmless."""
    return await submitting.cancel(context.store, sweep)


def _read(content: bytes, form: Format) -> tuple[SweepRequest, AnySpec, str]:
    """The sweep, the spec of its first trial, and a digest that is the same for the same document in YAML and JSON."""
    document = parse(content, form)
    wanted, first = read_sweep(document)
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return wanted, first, hashlib.sha256(canonical.encode()).hexdigest()
