"""Traces of running jobs' steps: create, list, summarize, draw and download them."""

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from ...service.orders import step_traces
from ...service.queries import trace_download
from ...service.queries import traces as trace_reading
from ...service.schemas.trace import Trace, Traces, TraceSpans, TraceSummary
from ...workers.messages.trace_request import MOST_STEPS, TRACED_RANKS
from ..http.dependencies import Actor, In
from ..http.job_ids import OrderKey
from ..http.problems import describe

router = APIRouter(tags=["telemetry"])

_READING = describe("job_not_found", "trace_not_found", "invalid_request")

Step = Annotated[int | None, Query(ge=1, lt=2**53, description="Number of a traced step.")]
Micros = Annotated[
    int, Query(ge=0, lt=2**53, description="Only spans that end after this time, in µs after the begin of the step.")
]
MicrosEnd = Annotated[
    int | None,
    Query(ge=0, lt=2**53, description="Only spans that start before this time, in µs after the begin of the step."),
]
Ranks = Annotated[
    list[Annotated[int, Query(ge=0, lt=2**31)]] | None,
    Query(max_length=TRACED_RANKS, description="Only this rank. Repeat it for several ranks."),
]


@router.post(
    "/jobs/{job}/trace",
    operation_id="traceJob",
    summary="Trace a running job's next steps",
    status_code=202,
    responses=describe(
        "job_not_found",
        "idempotency_conflict",
        "job_not_running",
        "trace_not_possible",
        "trace_open",
        "invalid_request",
    ),
)
async def trace(
    job: str,
    context: In,
    actor: Actor,
    key: OrderKey,
    steps: Annotated[int, Query(ge=1, le=MOST_STEPS, description="Number of consecutive steps.")] = 3,
) -> Trace:
    """Record the next steps of every rank, on one clock. The event `trace_finished` reports the end, or why the trace failed."""
    created = await step_traces.create(context.store, job, steps, key, actor)
    context.wake_dispatcher()
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
    before: Annotated[str | None, Query(max_length=80, description="`next` of the previous page.")] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> Traces:
    """Traces of a job, newest first. A job keeps its last 10."""
    return await step_traces.page(context.store, job, before=before, limit=limit)


@router.get(
    "/jobs/{job}/traces/{trace}",
    operation_id="getTrace",
    summary="Read the summary of a trace",
    responses=_READING,
)
async def get_trace(job: str, trace: str, context: In, step: Step = None) -> TraceSummary:
    """Time of each rank by category, the pipeline bubble, and the slowest rank: means over the traced steps, or of one `step`."""
    return await trace_reading.summary(context.store, job, trace, step)


@router.get(
    "/jobs/{job}/traces/{trace}/spans",
    operation_id="getTraceSpans",
    summary="Read the spans of a traced step",
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
    """Spans of one step (by default the first), with the ideal schedule. A response has at most 300 kB: the shortest spans are
    left out first, and counted. Request a shorter period to see them."""
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
    """All steps, ranks and recorded spans as one file for <https://ui.perfetto.dev> or chrome://tracing."""
    pieces = await trace_download.document(context.store, job, trace)
    name = {"Content-Disposition": f'attachment; filename="{trace}.json.gz"'}
    return StreamingResponse(pieces, media_type="application/octet-stream", headers=name)
