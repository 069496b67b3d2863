"""Streams to ranks of running jobs: terminals, and ports of their nodes, over a WebSocket. For asynchronous programs, as the command line.

A stream stays on one connection, so it is not resumed after a cut.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

import httpx2
from httpx2.websockets import AsyncWebSocketSession, HTTPXWSException, WebSocketUpgradeError
from wsproto.events import BytesMessage, TextMessage
from wsproto.utilities import LocalProtocolError

from .token import BearerToken
from .transport import ApiError, Unreachable, check_url, checked, find_url, made

#: Seconds for the server to open a stream: a dispatcher and the rank's node take part in the first one.
OPEN_S: Final = 60.0
#: Bytes of a message; the server takes a megabyte.
MOST_MESSAGE: Final = 1 << 15
#: Seconds for the server to answer a ping, which is sent every 20 s. It reads it late where the rank is slow to take input.
PONG_S: Final = 120.0


class RankStream:
    """An open stream. Messages are bytes, or control messages as `api/routes/streams.py` lists them."""

    def __init__(self, session: AsyncWebSocketSession) -> None:
        self._session = session

    async def send(self, content: bytes) -> None:
        """Send bytes; waits while the other side does not take them. No effect where the connection has ended."""
        for at in range(0, len(content), MOST_MESSAGE):
            await self._sent(BytesMessage(data=content[at : at + MOST_MESSAGE]))

    async def control(self, **message: Any) -> None:
        await self._sent(TextMessage(data=json.dumps(message)))

    async def receive(self) -> bytes | dict[str, Any] | None:
        """The next bytes or control message; None at the connection's end."""
        try:
            event = await self._session.receive()
        except HTTPXWSException:
            return None
        if isinstance(event, TextMessage):
            control: dict[str, Any] = json.loads(event.data)
            return control
        return bytes(event.data) if isinstance(event, BytesMessage) else b""

    async def _sent(self, message: BytesMessage | TextMessage) -> None:
        try:
            await self._session.send(message)
        except (HTTPXWSException, LocalProtocolError):  # `receive` reports the end
            return


class Streams:
    """Opens streams at one control plane. Use it as a context manager. `url` and `token` as of `AsyncClient`."""

    def __init__(self, url: str | None = None, *, token: str | None = None) -> None:
        self.url = find_url(url)
        check_url(self.url)
        hooks = {"response": [_read_refusal]}
        lone = httpx2.Limits(
            max_keepalive_connections=0
        )  # the server closes a connection whose handshake it has refused
        self._http = made(
            httpx2.AsyncClient,
            self.url,
            url,
            OPEN_S,
            auth=BearerToken(token, named=bool(url)),
            event_hooks=hooks,
            limits=lone,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    @asynccontextmanager
    async def terminal(
        self, job: str, rank: int, command: list[str], *, keep: bool, size: dict[str, Any]
    ) -> AsyncIterator[RankStream]:
        """A terminal at a rank; without `command` with the user's shell. `keep`: the one that outlives its clients.

        `size`: `rows`, `columns` and `term`, the variable TERM. Raises `ApiError`.
        """
        asked = {"rank": rank, "command": command, "keep": keep, **size}
        async with self._open(job, asked) as stream:
            yield stream

    @asynccontextmanager
    async def port(self, job: str, rank: int, port: int) -> AsyncIterator[RankStream]:
        """A connection to a port of the loopback of a rank's node. Raises `ApiError`."""
        async with self._open(job, {"rank": rank, "port": port}) as stream:
            yield stream

    @asynccontextmanager
    async def _open(self, job: str, asked: dict[str, Any]) -> AsyncIterator[RankStream]:
        """The body must catch its own errors: the session would wrap them in a group."""
        address = f"{self.url}/v1/jobs/{quote(job, safe='')}/streams"
        try:
            async with self._http.websocket(address, params=asked, keepalive_ping_timeout_seconds=PONG_S) as session:
                yield RankStream(session)
        except WebSocketUpgradeError as refused:
            checked(refused.response)
            raise ApiError("not_shardyard", f"{address} opened no WebSocket.", refused.response.status_code) from None
        except httpx2.InvalidURL:  # the command is a part of it
            raise ApiError("command_too_long", "The command is longer than an address can be.") from None
        except httpx2.TransportError as error:
            raise Unreachable(self.url, error) from None


async def _read_refusal(answer: httpx2.Response) -> None:
    """Read the body of an answer that opens no WebSocket, while its connection is open."""
    if answer.status_code != httpx2.codes.SWITCHING_PROTOCOLS:
        await answer.aread()
