"""The socket that the API listens on, and what serves it."""

import asyncio
import gc
import resource
import socket
import struct
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from types import ModuleType, SimpleNamespace

import pytest
from fastapi import FastAPI, Request, WebSocket
from fastapi.responses import StreamingResponse
from harness.patience import PATIENCE_S
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

from shardyard.api.daemon import uvicorn_server
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


HEAD = b"Host: here\r\n\r\n"


@asynccontextmanager
async def connected(listener: socket.socket) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(*listener.getsockname())
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def test_a_connection_without_a_request_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """However its bytes come: its sender may have no token, and a process may have few connections."""
    monkeypatch.setattr(uvicorn_server, "_KEEP_ALIVE_S", 0.5)
    listener = listen("127.0.0.1", 0)
    request = b"GET /none HTTP/1.1\r\n"

    async def ended(first: bytes, then: bytes) -> None:
        async with connected(listener) as (reader, writer):
            if first:
                writer.write(first)
                await reader.readuntil(b"}")
            writer.write(then)
            while True:
                try:
                    async with asyncio.timeout(0.05):
                        if not await reader.read(1024):
                            return
                except ConnectionError:
                    return
                except TimeoutError:  # a byte now and then keeps it no longer
                    writer.write(b"a" if then else b"")

    async with asyncio.timeout(PATIENCE_S), serving(an_app(), listener):
        await asyncio.gather(
            ended(b"", b""),
            ended(b"", request),
            ended(request + HEAD, request),
            ended(b"POST /none HTTP/1.1\r\nContent-Length: 9999\r\n" + HEAD, b"a body after its answer"),
        )


async def test_a_connection_that_was_reset_is_forgotten() -> None:
    """Not only after the time for a request."""
    listener = listen("127.0.0.1", 0)

    def held() -> int:
        gc.collect()
        return sum(isinstance(one, uvicorn_server.Connection) for one in gc.get_objects())

    async with asyncio.timeout(PATIENCE_S), serving(an_app(), listener):
        async with connected(listener) as (_, writer):
            while not held():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            unsent = struct.pack("ii", 1, 0)  # a reset follows, not an end
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, unsent)
        while held():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_bodies_streams_and_websockets_have_no_such_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """They go on after another connection, which came later, has reached it."""
    monkeypatch.setattr(uvicorn_server, "_KEEP_ALIVE_S", 0.5)
    app, listener = an_app(), listen("127.0.0.1", 0)
    reached = asyncio.Event()

    @app.post("/body")
    async def body(request: Request) -> int:
        return len(await request.body())

    @app.get("/stream")
    async def stream() -> StreamingResponse:
        async def parts() -> AsyncIterator[bytes]:
            yield b"begin"
            await reached.wait()
            yield b"the end"

        return StreamingResponse(parts())

    @app.websocket("/socket")
    async def echo(peer: WebSocket) -> None:
        await peer.accept()
        await peer.send_bytes(await peer.receive_bytes())

    upgrade = b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    heads = (
        b"POST /body HTTP/1.1\r\nContent-Length: 7\r\n" + HEAD + b"abc",
        b"GET /stream HTTP/1.1\r\n" + HEAD,
        b"GET /socket HTTP/1.1\r\n" + upgrade + HEAD,
    )
    async with asyncio.timeout(PATIENCE_S), serving(app, listener), AsyncExitStack() as stack:
        opened = []
        for head in heads:
            opened.append(await stack.enter_async_context(connected(listener)))
            opened[-1][1].write(head)
        (posted, posting), (streamed, _), (answered, talking) = opened
        await streamed.readuntil(b"begin")
        await answered.readuntil(b"\r\n\r\n")
        late, _ = await stack.enter_async_context(connected(listener))
        assert await late.read() == b""
        reached.set()
        posting.write(b"defg")
        talking.write(bytes([0x82, 0x82, 0, 0, 0, 0]) + b"ab")  # binary, masked with zeros
        assert (await posted.readuntil(b"\r\n\r\n7")).startswith(b"HTTP/1.1 200")
        await streamed.readuntil(b"the end")
        assert await answered.readuntil(b"ab") == bytes([0x82, 2]) + b"ab"


async def test_a_long_head_may_come_in_pieces() -> None:
    """As the network cuts it: an address may have a command of 31 KiB."""
    listener = listen("127.0.0.1", 0)
    head = b"GET /none?a=" + b"x" * 30_000 + b" HTTP/1.1\r\n" + HEAD
    async with asyncio.timeout(PATIENCE_S), serving(an_app(), listener), connected(listener) as (reader, writer):
        for piece in (head[:10_000], head[10_000:25_000], head[25_000:]):
            writer.write(piece)
            await asyncio.sleep(0.05)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 404")


async def test_connections_leave_files_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood of connections stops neither the dispatcher of the same process nor, once it has passed, the API."""
    listener = listen("127.0.0.1", 0)
    async with asyncio.timeout(PATIENCE_S), serving(an_app(), listener), AsyncExitStack() as stack:
        monkeypatch.setattr(resource, "getrlimit", lambda _: (6, 6))
        for _ in range(3):
            reader, writer = await stack.enter_async_context(connected(listener))
            writer.write(b"GET /none HTTP/1.1\r\n" + HEAD)
            await reader.readuntil(b"}")
        refused, _ = await stack.enter_async_context(connected(listener))
        assert await refused.read() == b""


@pytest.mark.parametrize("most", [900, 1 << 40])
async def test_the_process_may_open_as_many_files_as_it_is_allowed(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """But not a billion, as in some containers."""
    monkeypatch.setattr(uvicorn_server, "_FILES", most)
    _, hard = before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (800, hard))
    try:
        async with serving(an_app(), listen("127.0.0.1", 0)):
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (min(hard, most), hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_without_files_few_errors_are_logged_at_a_time() -> None:
    """asyncio tries again each second."""
    listener, before = listen("127.0.0.1", 0), resource.getrlimit(resource.RLIMIT_NOFILE)
    errors: list[object] = []
    failed = asyncio.Event()

    def note(_: object, context: dict[str, object]) -> None:
        errors.append(context["exception"])
        failed.set()

    asyncio.get_running_loop().set_exception_handler(note)
    async with asyncio.timeout(PATIENCE_S), serving(an_app(), listener):
        with socket.socket() as client:
            client.setblocking(False)
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
                await asyncio.get_running_loop().sock_connect(client, listener.getsockname())
                await failed.wait()
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, before)
        assert 0 < len(errors) <= 128


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
