"""A job's events as they happen."""

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse

from ...service.queries import jobs, live_tail
from ...service.schemas.cursor import Cursor
from ...service.schemas.live_tail import Scope
from ..http.dependencies import In
from ..http.job_ids import require_job_id_with
from ..http.problems import describe
from ..http.stream_schema import stream_union, streamed_kinds
from ..http.watch_hub import EventStream
from .logs import Rank

router = APIRouter(tags=["telemetry"])

_SENT = 'event: step\ndata: {"step": 1, "loss": 5.55}\nid: 3.1.0\n\n'
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": f"By the field `event` one of {', '.join(f'`{kind}`' for kind in streamed_kinds())}. "
        "The stream of a job that has ended finishes with `end`, whose data is `{}`.",
        "content": {"text/event-stream": {"schema": stream_union(), "example": _SENT}},
    },
    **describe("job_not_found", "invalid_cursor", "invalid_request"),
}


@router.get(
    "/jobs/{job}/events",
    operation_id="watchJob",
    summary="Watch a job",
    response_class=StreamingResponse,
    responses=_STREAM,
)
async def watch(
    job: str,
    context: In,
    after: Annotated[
        str | None, Query(max_length=80, description="Cursor of the last event seen. Needs the job's id, not its name.")
    ] = None,
    logs: Annotated[bool, Query(description="Include `log` events, one per line.")] = False,
    rank: Rank = None,
    ranks: Annotated[bool, Query(description="Include `rank_metrics` events: the newest sample of the ranks.")] = False,
    last_event_id: Annotated[
        str | None, Header(max_length=80, description="Cursor of the last event seen. Takes precedence over `after`.")
    ] = None,
) -> EventStream:
    """Server-sent events from the job's start, or after a cursor, to its end. Each `id` is a cursor.

    With a cursor the job must be given by its id: a name may mean another job by now.
    """
    cursor = Cursor.parse(last_event_id or after or str(Cursor()))
    require_job_id_with(any(cursor), job)
    found = await jobs.get_job(context.store, job)
    scope = Scope(logs, rank, ranks)
    read = partial(live_tail.tail, context.store, found.id, scope=scope)
    return EventStream(context.hub, found.id, read, cursor, scope)
