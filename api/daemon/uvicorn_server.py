"""Serves the API with uvicorn: on a socket that is certainly ours, and with a shutdown that does not wait for live streams."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from ipaddress import ip_address

import uvicorn
from fastapi import FastAPI

from ..errors import PortTaken

#: Number of ports that are tried after the first.
_MORE_PORTS = 50
#: Seconds that open connections have to end.
_GRACE_S = 3
#: Seconds for which an idle connection stays open: longer than proxies keep theirs (60 s), which would send a request into its end.
_KEEP_ALIVE_S = 75
#: Bytes of a WebSocket's message.
_MOST_MESSAGE = 1 << 20
#: Seconds for a WebSocket's client to answer a ping, which is sent every 20 s. One whose reader is slow reads it late.
_PONG_S = 120


class Server(uvicorn.Server):
    """uvicorn that leaves signals to its process, and ends live streams before it waits for connections."""

    def __init__(self, app: FastAPI) -> None:
        config = uvicorn.Config(
            app,
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
    """Serve the app on `listener` while the body runs. The task ends early only when the server fails."""
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


def listen(host: str, port: int, *, exactly: bool = False) -> socket.socket:
    """A listening socket on `port`, or the next free one unless `exactly`. Raises `PortTaken`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for candidate in [port] if exactly or port == 0 else range(port, min(port + _MORE_PORTS, 65536)):
        # asyncio sets TCP_NODELAY if a socket names TCP; without it each answer on a kept connection waits 40 ms for an ACK.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, candidate))
            listener.listen(2048)
        except OSError as error:
            listener.close()
            reason = error
            continue
        return listener
    raise PortTaken(
        f"{host}:{port} cannot be listened on: {reason.strerror}.",
        field="port",
        remedy="Free it, or choose another with: shardyard up --port PORT",
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
