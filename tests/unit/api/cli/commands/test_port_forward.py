"""Forwarded connections reach one job, and Ctrl-C ends them at once, however long their peers would keep them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from harness.client_stand_in import ClientStandIn

from shardyard.api.cli.commands import port_forward
from shardyard.api.cli.commands.port_forward import Forward, Ports
from shardyard.api.cli.main import run
from shardyard.api.client import ApiError


class Stream:
    """A stream whose rank sends nothing, and never ends it."""

    async def send(self, _: bytes) -> None: ...

    async def control(self, **_: bool) -> None: ...

    async def receive(self) -> None:
        await asyncio.Event().wait()


class Streams:
    """Counts the streams that are opened and end. `both`: the probe's, and that of a connection."""

    def __init__(self) -> None:
        self.opened, self.ended, self.both = 0, 0, asyncio.Event()

    async def __aenter__(self) -> "Streams":
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    @asynccontextmanager
    async def port(self, *_: object) -> AsyncIterator[Stream]:
        self.opened += 1
        if self.opened == 2:
            self.both.set()
        try:
            yield Stream()
        finally:
            self.ended += 1


class Screen:
    """Has the address that is said."""

    def __init__(self) -> None:
        self.said: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def say(self, text: str) -> None:
        self.said.set_result(text)


async def test_open_connections_end_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a server waits for its connections to be closed, as from Python 3.12 on."""

    async def waits(_: asyncio.Server) -> None:
        await asyncio.Event().wait()

    screen, streams, errors = Screen(), Streams(), list[dict[str, Any]]()
    monkeypatch.setattr(asyncio.Server, "wait_closed", waits)
    monkeypatch.setattr(port_forward, "Streams", lambda _: streams)
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    forward = Forward(screen, None, "job-1", 0, named="train")  # type: ignore[arg-type]
    serving = asyncio.create_task(forward.serve([Ports(0, 8888)]))
    async with asyncio.timeout(10):
        said = await screen.said
        assert said.endswith(" is port 8888 of rank 0 of train.")
        local = int(said.split()[0].rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", local)
        await streams.both.wait()
        serving.cancel()
        await asyncio.wait([serving])
        assert serving.cancelled() and streams.ended == 2
        assert await reader.read() == b""
    writer.close()
    assert not errors


class Service(ClientStandIn):
    """A client of a service with a job of a name."""

    def job(self, name: str) -> SimpleNamespace:
        assert name == "train"
        return SimpleNamespace(id="job-1")


def test_a_name_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else later connections would reach a newer job of the name."""
    streams, asked = Streams(), list[object]()

    def port(*what: object) -> None:
        asked.append(what)
        raise ApiError("exec_disabled", "It connects nothing.")

    monkeypatch.setattr(streams, "port", port)
    monkeypatch.setattr(port_forward, "Client", Service)
    monkeypatch.setattr(port_forward, "Streams", lambda _: streams)
    assert run(["port-forward", "train", "8888"]) == 1
    assert asked == [("job-1", 0, 8888)]
