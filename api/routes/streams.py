"""Streams to the ranks of running jobs over a WebSocket: terminals, and ports of their nodes, if commands are enabled on this server."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, WebSocket

from ...service.orders import stream_gates
from ...service.orders.stream_gates import StreamRequest
from ...service.schemas.exec import Argument
from ..http.dependencies import Actor, In
from ..http.stream_relay import relay

router = APIRouter(tags=["telemetry"])

_Cells = Annotated[int, Query(ge=1, le=1000)]


def _terminal(
    command: Annotated[list[Argument] | None, Query(max_length=256)] = None,
    keep: bool = False,
    rows: _Cells = 24,
    columns: _Cells = 80,
    term: Annotated[str, Query(max_length=64, pattern=r"^[\w.+-]+$")] = "xterm",
) -> dict[str, Any]:
    """What a terminal is opened with. Without `command` it has the user's shell. `keep`: the one that outlives its clients."""
    return {"command": command or [], "keep": keep, "rows": rows, "columns": columns, "term": term}


def _stream_request(
    job: str,
    actor: Actor,
    terminal: Annotated[dict[str, Any], Depends(_terminal)],
    rank: Annotated[int, Query(ge=0, le=2**31 - 1)] = 0,
    port: Annotated[int | None, Query(ge=1, le=65535)] = None,
) -> StreamRequest:
    return StreamRequest(job, rank, terminal if port is None else {"port": port}, actor)


@router.websocket("/jobs/{job}/streams")
async def streams(
    websocket: WebSocket, context: In, wanted: Annotated[StreamRequest, Depends(_stream_request)]
) -> None:
    """Connect with `port` of a rank's node, or else with a terminal there. Binary messages are data, texts are JSON.

    The server's texts are `{"exit": status}` of a terminal's program, `{"replaced": true}` where another client shows the kept terminal
    now, and `{"eof": true}` of a port. The client's are `{"rows", "columns"}` of a terminal's new size, or
    `{"eof": true}` of a port. A refusal is the answer to the handshake, with a problem body as of every route.
    """
    sign = None if context.authenticator is None else context.authenticator.keys.gate_token
    stream = await stream_gates.connect(context.store, context.settings, wanted, sign, context.wake_dispatcher)
    try:
        await websocket.accept()
        await relay(websocket, stream)
    finally:
        stream.close()
