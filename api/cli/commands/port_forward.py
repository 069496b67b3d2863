"""`shardyard port-forward`: ports of a rank's node on this machine, through the API."""

import asyncio
import re
from contextlib import suppress
from typing import Annotated, NamedTuple

import typer

from ....workers.messages.stream_frames import MOST_FRAME, until_ended
from ...client import Client
from ...client.streams import RankStream, Streams
from ...client.transport import ApiError
from ...errors import InvalidParameter, PortTaken
from ..options import JobName, Url
from ..terminal.screen import Screen


class Ports(NamedTuple):
    """A port of this machine, and that of the rank's node to which it leads."""

    local: int
    remote: int


def port_forward(
    job: JobName,
    ports: Annotated[
        list[str],
        typer.Argument(metavar="[LOCAL:]PORT...", help="Ports of the rank's node; LOCAL is one of this machine."),
    ],
    rank: Annotated[int, typer.Option("--rank", min=0, help="The rank whose node has the ports.")] = 0,
    url: Url = None,
) -> None:
    """Reach servers in a job, such as TensorBoard or Jupyter, at 127.0.0.1: shardyard port-forward JOB 6006

    Only this machine's users reach the local ports. Needs SHARDYARD_EXEC=true on the server. Ctrl-C ends it.
    """
    wanted = [read(text) for text in ports]
    with suppress(KeyboardInterrupt):
        with Client(url) as client:  # else later connections would reach a newer job of the name
            found = client.job(job).id
        asyncio.run(Forward(Screen(), url, found, rank, named=job).serve(wanted))


def read(text: str) -> Ports:
    """Ports as typed, `8888` or `9000:8888`. Raises InvalidParameter."""
    found = re.fullmatch(r"(?:(\d{1,5}):)?(\d{1,5})", text)
    ports = Ports(int(found[1] or found[2]), int(found[2])) if found else Ports(0, 0)
    if not (0 <= ports.local <= 65535 and 1 <= ports.remote <= 65535):
        remedy = "Name a port from 1 to 65535, such as 8888, or 9000:8888 for another one on this machine."
        raise InvalidParameter(f"{text[:40]!r} is no port.", field="PORT", remedy=remedy)
    return ports


class Forward:
    """The forwarded ports of one rank. `path`: what follows the addresses that are printed. `named`: the job as its user typed it."""

    def __init__(
        self, screen: Screen, url: str | None, job: str, rank: int, path: str = "", *, named: str | None = None
    ) -> None:
        self._screen, self._url, self._job, self._rank = screen, url, job, rank
        self._path, self._named = path, named or job
        self._reported = ""
        self._connections: set[asyncio.Task[None]] = set()

    async def serve(self, ports: list[Ports]) -> None:
        """Forward connections until this is cancelled, which ends them. Raises ApiError, PortTaken."""
        servers: list[asyncio.Server] = []
        async with Streams(self._url) as streams:
            await self._probe(streams, ports[0])
            try:
                for one in ports:
                    servers.append(await self._listen(streams, one))
                await asyncio.Event().wait()  # `serve_forever` would wait for the connections' own ends
            finally:
                for server in servers:
                    server.close()
                for connection in self._connections:
                    connection.cancel()
                await asyncio.gather(*self._connections, return_exceptions=True)

    async def _probe(self, streams: Streams, ports: Ports) -> None:
        """Raises what every connection would, but for a port on which nothing listens yet."""
        try:
            async with streams.port(self._job, self._rank, ports.remote):
                return
        except ApiError as error:
            if error.code != "port_closed":
                raise
            self._screen.say(f"Nothing listens on port {ports.remote} there yet.")

    async def _listen(self, streams: Streams, ports: Ports) -> asyncio.Server:
        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connection = asyncio.create_task(self._forward(streams, ports.remote, reader, writer))
            self._connections.add(connection)
            connection.add_done_callback(self._connections.discard)

        try:
            server = await asyncio.start_server(accepted, "127.0.0.1", ports.local, limit=MOST_FRAME)
        except OSError as error:
            raise PortTaken(
                f"127.0.0.1:{ports.local} cannot be listened on: {error.strerror}.",
                field="PORT",
                remedy=f"Choose another port of this machine, such as 0:{ports.remote} for any free one.",
            ) from None
        local = server.sockets[0].getsockname()[1]
        self._screen.say(
            f"http://127.0.0.1:{local}{self._path} is port {ports.remote} of rank {self._rank} of {self._named}."
        )
        return server

    async def _forward(
        self, streams: Streams, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """One connection, until it ends or is cancelled."""
        try:
            async with streams.port(self._job, self._rank, port) as stream:
                await _pass_on(stream, reader, writer)
        except ApiError as error:
            self._report(error)
        finally:
            writer.close()

    def _report(self, error: ApiError) -> None:
        """Print a failure, unless it is the one before: a browser tries again and again."""
        if error.detail != self._reported:
            self._reported = error.detail
            self._screen.error(error.detail, error.errors)


async def _pass_on(stream: RankStream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on what both sides send, until both have ended, or the connection has."""
    remote_ended = asyncio.Event()

    async def to_rank() -> None:
        while content := await reader.read(MOST_FRAME):
            await stream.send(content)
        await stream.control(eof=True)
        await remote_ended.wait()

    async def to_local() -> None:
        while (message := await stream.receive()) is not None:
            if isinstance(message, bytes):
                writer.write(message)
                await writer.drain()
            else:  # {"eof": true}
                writer.write_eof()
                remote_ended.set()
        raise ConnectionResetError

    await until_ended(to_rank(), to_local())
