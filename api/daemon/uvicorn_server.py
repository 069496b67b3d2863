"""Serves the API with uvicorn: on a socket that is certainly ours, and with a shutdown that does not wait for live streams.

Before a request has arrived on a connection its sender has shown no token. So such connections end by themselves, and have a bound.
"""

import asyncio
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from ipaddress import ip_address

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..errors import PortTaken

#: Number of ports that are tried after the first.
_MORE_PORTS = 50
#: Seconds that open connections have to end.
_GRACE_S = 3
#: Seconds for which a connection stays open without a request: longer than proxies keep theirs (60 s), which would send one into its end.
_KEEP_ALIVE_S = 75
#: Connections at a time, whose heads of requests may take `_MOST_HEAD` bytes of memory each.
_MOST_CONNECTIONS = 4096
#: Files that this process may open, if its hard limit allows it. In containers that may be a billion, which some programs close one by one.
_FILES = 1 << 16
#: Bytes of a request's head that arrives in pieces: an address may have a command of 31 KiB.
_MOST_HEAD = 128 << 10
#: Connections that the kernel holds until they are accepted. asyncio logs as many errors in a row when this process may open no more files.
_BACKLOG = 128
#: Bytes of a WebSocket's message.
_MOST_MESSAGE = 1 << 20
#: Seconds for a WebSocket's client to answer a ping, which is sent every 20 s. One whose reader is slow reads it late.
_PONG_S = 120


class Connection(H11Protocol):
    """A connection that is closed if no request has arrived on it for `_KEEP_ALIVE_S`, since its beginning or its last answer.

    uvicorn's has that limit only after an answer, and until the next byte. A body, a stream or a WebSocket of a request has no such limit.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        if len(self.connections) > _most_connections():
            transport.abort()
            return
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def data_received(self, data: bytes) -> None:
        self.conn.receive_data(data)
        self.handle_events()  # which ends the timer at a request's complete head

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_keepalive_if_required()  # the timer of one that was reset would keep it in memory


class Server(uvicorn.Server):
    """uvicorn that leaves signals to its process, and ends live streams before it waits for connections."""

    def __init__(self, app: FastAPI) -> None:
        config = uvicorn.Config(
            app,
            http=Connection,
            h11_max_incomplete_event_size=_MOST_HEAD,
            backlog=_BACKLOG,
            lifespan="on",
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,  # the client's address is read from the connection, not from a header
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_GRACE_S,
            ws="wsproto",  # by itself uvicorn takes `websockets`, of whatever version, where that is installed
            ws_max_size=_MOST_MESSAGE,
            ws_ping_timeout=_PONG_S,
        )
        super().__init__(config)
        self._hub = app.state.context.hub
        self.listening = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._hub.close()
        await super().shutdown(sockets)


@asynccontextmanager
async def serving(app: FastAPI, listener: socket.socket) -> AsyncIterator[asyncio.Task[None]]:
    """Serve the app on `listener` while the body runs. The task ends early only when the server fails.

    Raises this process's limit of open files, if it may.
    """
    _allow_open_files()
    server = Server(app)
    task = asyncio.create_task(server.serve(sockets=[listener]), name="HTTP server")
    try:
        listening = asyncio.create_task(server.listening.wait())
        await asyncio.wait([listening, task], return_when=asyncio.FIRST_COMPLETED)
        listening.cancel()
        yield task
    finally:
        server.should_exit = True
        await task


def _most_connections() -> int:
    """Half of the files that this process may open. The other half is for the database, storage and streams to ranks."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else min(_MOST_CONNECTIONS, soft // 2)


def _allow_open_files() -> None:
    """The soft limit is often 1,024, for programs that use select(2)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def listen(host: str, port: int, *, exactly: bool = False) -> socket.socket:
    """A listening socket on `port`, or the next free one unless `exactly`. Raises `PortTaken`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for candidate in [port] if exactly or port == 0 else range(port, min(port + _MORE_PORTS, 65536)):
        # asyncio sets TCP_NODELAY if a socket names TCP; without it each answer on a kept connection waits 40 ms for an ACK.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, candidate))
            listener.listen(_BACKLOG)
        except OSError as error:
            listener.close()
            reason = error
            continue
        return listener
    raise PortTaken(
        f"{host}:{port} cannot be listened on: {reason.strerror}.",
        field="port",
        remedy="Free it, or choose another with --port PORT.",
    )


def url_of(listener: socket.socket) -> str:
    """An address at which this machine reaches the listener, such as `http://127.0.0.1:8400`: of all addresses, the loopback's."""
    host, port = listener.getsockname()[:2]
    if is_on_all(listener):
        host = "::1" if ":" in host else "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_on_all(listener: socket.socket) -> bool:
    """Whether it listens on all addresses of this machine, as with `SHARDYARD_HOST=0.0.0.0`."""
    return ip_address(listener.getsockname()[0]).is_unspecified
