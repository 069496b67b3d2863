"""Traces of running jobs' steps: asked for, listed, summed up, drawn, downloaded."""

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from ...service.orders import step_traces
from ...service.queries import trace_download
from ...service.queries import traces as trace_reading
from ...service.schemas.trace import Trace, Traces, TraceSpans, TraceSummary
from ...workers.messages.trace_request import MOST_STEPS, TRACED_RANKS
from ..http.dependencies import Actor, In, Key
from ..http.problems import describe

router = APIRouter(tags=["telemetry"])

_READING = describe("job_not_found", "trace_not_found", "invalid_request")

Step = Annotated[int | None, Query(ge=1, lt=2**53, description="A step of the trace.")]
Micros = Annotated[
    int, Query(ge=0, lt=2**53, description="µs after the step's begin: only spans that reach beyond it.")
]
MicrosEnd = Annotated[
    int | None, Query(ge=0, lt=2**53, description="µs after the step's begin: only spans that begin before.")
]
Ranks = Annotated[
    list[Annotated[int, Query(ge=0, lt=2**31)]] | None,
    Query(max_length=TRACED_RANKS, description="Only these; repeated."),
]


@router.post(
    "/jobs/{job}/trace",
    operation_id="traceJob",
    summary="Trace a running job's next steps",
    status_code=202,
    responses=describe("job_not_found", "idempotency_conflict", "job_not_running", "trace_open", "invalid_request"),
)
async def trace(
    job: str,
    context: In,
    actor: Actor,
    steps: Annotated[int, Query(ge=1, le=MOST_STEPS, description="How many, one after the other.")] = 3,
    key: Key = None,
) -> Trace:
    """Record what every rank does in the next steps, on one clock. The event `trace_finished` says when it is done, or why it is not."""
    created = await step_traces.create(context.store, job, steps, key, actor)
    context.stir()
    return created


@router.get(
    "/jobs/{job}/traces",
    operation_id="listTraces",
    summary="List a job's traces",
    responses=describe("job_not_found", "invalid_cursor", "invalid_request"),
)
async def list_traces(
    job: str,
    context: In,
    before: Annotated[str | None, Query(max_length=80, description="`next` of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> Traces:
    """Newest first. A job keeps its last ten."""
    return await step_traces.page(context.store, job, before=before, limit=limit)


@router.get(
    "/jobs/{job}/traces/{trace}",
    operation_id="getTrace",
    summary="Sum up a trace",
    responses=_READING,
)
async def get_trace(job: str, trace: str, context: In, step: Step = None) -> TraceSummary:
    """Where each rank's time went: means over the traced steps, or of one `step`; the bubble, and the rank that worked longest."""
    return await trace_reading.summary(context.store, job, trace, step)


@router.get(
    "/jobs/{job}/traces/{trace}/spans",
    operation_id="getTraceSpans",
    summary="Read a traced step's spans",
    responses=_READING,
)
async def spans(
    job: str,
    trace: str,
    context: In,
    step: Step = None,
    ranks: Ranks = None,
    from_us: Micros = 0,
    to_us: MicrosEnd = None,
) -> TraceSpans:
    """A step (the first where none is named) as it is drawn, beside the ideal schedule. At most 300 kB: the shortest spans are
    left out first, and counted; a shorter stretch of time brings them back."""
    window = trace_reading.Window(from_us, to_us)
    return await trace_reading.spans(context.store, job, trace, step, ranks, window)


@router.get(
    "/jobs/{job}/traces/{trace}/perfetto",
    operation_id="downloadTrace",
    summary="Download a trace for Perfetto",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "Chrome trace JSON, gzip.",
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        },
        **_READING,
    },
)
async def download(job: str, trace: str, context: In) -> StreamingResponse:
    """All steps, ranks and spans in one file for <https://ui.perfetto.dev> or chrome://tracing."""
    pieces = await trace_download.document(context.store, job, trace)
    name = {"Content-Disposition": f'attachment; filename="{trace}.json.gz"'}
    return StreamingResponse(pieces, media_type="application/octet-stream", headers=name)
