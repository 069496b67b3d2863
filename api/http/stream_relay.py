"""Passes on what a WebSocket and a stream to a rank send each other: binary messages are data, texts are control messages in JSON."""

from starlette.websockets import WebSocket, WebSocketDisconnect

from ...workers.messages.stream_frames import CONTROL, DATA, Stream, until_ended


async def relay(websocket: WebSocket, stream: Stream) -> None:
    """Returns when either side has ended. Neither side is read faster than the other takes it."""
    await until_ended(_to_client(websocket, stream), _to_rank(websocket, stream))


async def _to_client(websocket: WebSocket, stream: Stream) -> None:
    try:
        while (frame := await stream.read()) is not None:
            kind, content = frame
            if kind == DATA:
                await websocket.send_bytes(content)
            else:
                await websocket.send_text(content.decode())
        await websocket.close()
    except (WebSocketDisconnect, ValueError):
        return


async def _to_rank(websocket: WebSocket, stream: Stream) -> None:
    """Ends with an error, so that the other direction ends, too."""
    while (message := await websocket.receive())["type"] == "websocket.receive":
        if message.get("bytes") is not None:
            await stream.send(DATA, message["bytes"])
        else:
            await stream.send(CONTROL, message["text"].encode())
    raise WebSocketDisconnect
