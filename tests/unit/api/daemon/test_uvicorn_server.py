"""The socket that the API listens on, and what serves it."""

import asyncio
import socket
import sys
from types import ModuleType, SimpleNamespace

import pytest
from fastapi import FastAPI
from harness.patience import PATIENCE_S
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

from shardyard.api.daemon.uvicorn_server import Server, is_on_all, listen, serving, url_of
from shardyard.api.errors import PortTaken


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


async def test_websockets_are_served_by_the_library_that_is_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where another one is installed, of a version that uvicorn does not know."""
    monkeypatch.setitem(sys.modules, "websockets", ModuleType("websockets"))
    monkeypatch.delitem(sys.modules, "uvicorn.protocols.websockets.auto", raising=False)
    config = Server(an_app()).config
    config.load()
    assert config.ws_protocol_class is WSProtocol


def an_app() -> FastAPI:
    app = FastAPI()
    app.state.context = SimpleNamespace(hub=SimpleNamespace(close=lambda: None))
    return app


async def test_idle_connections_outlive_a_proxys_and_end_with_the_server() -> None:
    """A proxy that keeps one for 60 s would send a request into its end, and answer with 502."""
    listener = listen("127.0.0.1", 0)
    async with asyncio.timeout(PATIENCE_S), serving(an_app(), listener):
        assert Server(an_app()).config.timeout_keep_alive > 60
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(b"GET /none HTTP/1.1\r\nHost: here\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
    async with asyncio.timeout(PATIENCE_S):
        while await reader.read(1024):
            pass
    writer.close()


@pytest.mark.parametrize(
    ("host", "reached", "on_all"),
    [
        ("127.0.0.1", "127.0.0.1", False),
        ("0.0.0.0", "127.0.0.1", True),
        ("::", "[::1]", True),
    ],
)
def test_a_listener_of_all_addresses_is_reached_over_the_loopback(host: str, reached: str, on_all: bool) -> None:
    """A client of this machine sends no proxy there, and opens a browser there."""
    try:
        listener = listen(host, 0)
    except PortTaken:
        pytest.skip(f"this machine has no {host}")
    with listener:
        assert url_of(listener) == f"http://{reached}:{listener.getsockname()[1]}"
        assert is_on_all(listener) is on_all
