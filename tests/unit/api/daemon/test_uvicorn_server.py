"""The socket that the API listens on."""

import asyncio
import socket

from shardyard.api.daemon.uvicorn_server import listen


async def test_an_answer_is_sent_at_once() -> None:
    """Without TCP_NODELAY an answer of two writes waits for the delayed ACK of the first."""
    accepted: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.set_result(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    listener = listen("127.0.0.1", 0)
    async with await asyncio.start_server(serve, sock=listener):
        _, client = await asyncio.open_connection(*listener.getsockname())
        assert await accepted
        client.close()
        await client.wait_closed()
