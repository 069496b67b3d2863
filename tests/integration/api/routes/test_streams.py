"""Streams to a rank over the served API: the rank's gate is a real one, beside a process of the test's."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from harness.gates import echo, gone, opening_gates, printed, process
from harness.patience import PATIENCE_S
from httpx2.websockets import WebSocketUpgradeError

from shardyard.api.cli.terminal.event_lines import remark
from shardyard.api.client import ApiError, Client
from shardyard.api.client.streams import RankStream, Streams
from shardyard.service.orders import stream_gates
from shardyard.service.schemas.exec import Exec
from shardyard.service.settings import Settings

from ..conftest import SIGNED, Gang, Plane, running_job, served

SIZE = {"rows": 33, "columns": 77, "term": "xterm"}


@pytest.fixture
def allowed(settings: Settings) -> Iterator[Plane]:
    """A served API that lets users run commands."""
    with served(settings.model_copy(update={"exec": True})) as opened:
        yield opened


@contextmanager
def reachable(plane: Plane, folder: Path) -> Iterator[tuple[str, Client]]:
    """A running job whose gates open, and a client."""
    with Client(plane.url) as client, process(folder) as pid:
        job, gang = running_job(plane, client)
        with opening_gates(client, job, gang.emit, pid):
            yield job, client


@pytest.fixture
async def streams(allowed: Plane) -> AsyncIterator[Streams]:
    async with Streams(allowed.url) as opened:
        yield opened


async def control(stream: RankStream) -> dict[str, Any] | None:
    """The next control message; None at the connection's end."""
    async with asyncio.timeout(PATIENCE_S):
        while isinstance(message := await stream.receive(), bytes):
            pass
    return message


async def test_a_terminal_and_ports_share_a_gate_that_is_on_record(
    allowed: Plane, streams: Streams, tmp_path: Path
) -> None:
    content = bytes(range(256)) * 2048
    with reachable(allowed, tmp_path) as (job, client):
        assert client.server().terminals
        script = ["sh", "-c", 'stty size; pwd; echo "rank $RANK"; read line; echo "got $line"; exit 7']
        async with streams.terminal(job, 1, script, keep=False, size=SIZE) as terminal, echo() as server:
            await printed(terminal, "33 77\r\n", f"{tmp_path}\r\n", "rank 1\r\n")
            async with streams.port(job, 1, server) as port:
                sending, returned = asyncio.create_task(port.send(content)), b""
                async with asyncio.timeout(PATIENCE_S):
                    while len(returned) < len(content):
                        message = await port.receive()
                        assert isinstance(message, bytes)
                        returned += message
                await sending
                assert returned == content
                await port.control(eof=True)
                assert await control(port) == {"eof": True}
            await terminal.send(b"hello\r")
            await printed(terminal, "got hello\r\n")
            assert await control(terminal) == {"exit": 7}
            assert await control(terminal) is None
        [gate] = client.execs(job).items
        assert (gate.rank, gate.actor, gate.status) == (1, "local", None)
        [found] = client.search_logs(job, "opened a terminal").lines
        assert (found.stream, found.rank) == ("gate", 1) and found.text.startswith("local opened a terminal: sh -c")


async def test_a_client_that_vanishes_leaves_no_process_and_a_kept_shell_is_there_again(
    allowed: Plane, streams: Streams, tmp_path: Path
) -> None:
    with reachable(allowed, tmp_path) as (job, client):
        script = ["sh", "-c", 'trap "" HUP; echo "pid $$."; sleep 1000']
        async with streams.terminal(job, 0, script, keep=False, size=SIZE) as terminal:
            pid = int((await printed(terminal, "pid ", ".")).partition("pid ")[2].partition(".")[0])
        await gone(pid)
        async with streams.terminal(job, 0, ["sh"], keep=True, size=SIZE) as terminal:
            await terminal.send(b"x=kept\r")
        async with streams.terminal(job, 0, [], keep=True, size=SIZE) as terminal:
            await terminal.send(b"echo is $x\r")
            await printed(terminal, "is kept\r\n")
        # A command beside the rank is not refused because of the gate.
        assert client.execute(job, ["ls"], rank=0).status is None


async def test_a_stopped_server_ends_its_streams(allowed: Plane, streams: Streams, tmp_path: Path) -> None:
    with reachable(allowed, tmp_path) as (job, _):
        async with streams.terminal(job, 0, ["cat"], keep=False, size=SIZE) as terminal:
            await asyncio.to_thread(allowed.stop)
            assert await control(terminal) is None
        allowed.start()  # for what watches the job


async def refused(streams: Streams, job: str, rank: int = 0, port: int = 9) -> ApiError:
    with pytest.raises(ApiError) as error:
        async with streams.port(job, rank, port):
            pass
    return error.value


async def test_refusals_are_problems_with_fields(allowed: Plane, streams: Streams, tmp_path: Path) -> None:
    with reachable(allowed, tmp_path) as (job, client):
        async with echo() as closed:
            pass
        for asked, code, field in [
            ((job, 0, closed), "port_closed", "port"),
            ((job, 2, closed), "profile_rank_unknown", "rank"),
            ((job, -1, closed), "invalid_request", "rank"),
            ((job, 0, 0), "invalid_request", "port"),
            (("absent", 0, closed), "job_not_found", None),
        ]:
            error = await refused(streams, *asked)
            [finding] = error.errors
            assert (error.code, finding.field) == (code, field) and finding.message and finding.remedy, asked
        for arguments in (5, 10):  # the second is refused by the client
            with pytest.raises(ApiError) as too_long:
                async with streams.terminal(job, 1, ["echo", *["x" * 8000] * arguments], keep=False, size=SIZE):
                    pass
            assert too_long.value.code == "command_too_long"
        assert {one.rank for one in client.execs(job).items} == {0}
        client.cancel(job)
        assert (await refused(streams, job)).code == "job_not_running"


async def test_a_server_that_allows_no_commands_opens_no_streams(plane: Plane) -> None:
    with Client(plane.url) as client:
        job, _ = running_job(plane, client)
    async with Streams(plane.url) as streams:
        error = await refused(streams, job)
    assert error.code == "exec_disabled" and "SHARDYARD_EXEC=true" in (error.errors[0].remedy or "")


async def test_a_rank_that_opens_no_gate_is_unreachable(
    allowed: Plane, streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_gates, "OPEN_S", 0.3)
    with Client(allowed.url) as client:
        job, gang = running_job(allowed, client)
        error = await refused(streams, job)
        assert error.code == "rank_unreachable" and "opened no way within 0.3 s" in error.detail
        [gate] = client.execs(job).items
        gang.emit(("exec", {"id": gate.id, "rank": 0, "status": None, "message": "the rank's process ended"}))
        monkeypatch.setattr(stream_gates, "OPEN_S", PATIENCE_S)
        asked = asyncio.create_task(refused(streams, job))
        again = await ordered(client, job, 2)
        gang.emit(("exec", {"id": again.id, "rank": 0, "status": 127, "message": "exit status 127"}))
        assert "exit status 127 (an earlier version of Shardyard has started" in (await asked).detail
        gang.state("succeeded")
        shown = [remark(event) or "" for event in client.events(job) if event.kind == "exec"]
        assert shown[1].endswith("streams to rank 0, first opened by local: exit status 127")


async def ordered(client: Client, job: str, number: int = 1) -> Exec:
    """The order of a gate, once as many as this were ordered."""
    async with asyncio.timeout(PATIENCE_S):
        while len(client.execs(job).items) < number:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return client.execs(job).items[0]


def listens(gang: Gang, gate: Exec, place: str) -> None:
    """A gate prints that it listens at an address and a port."""
    said = f"{gate.command[1]} listens on {place}"
    gang.emit(("log", {"rank": 0, "first": 1, "stream": "gate", "lines": [said]}))


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("169.254.169.254 80", "169.254.169.254 is the address of no node"),
        ("::ffff:169.254.169.254 80", "169.254.169.254 is the address of no node"),
        ("::ffff:0.0.0.0 80", "0.0.0.0 is the address of no node"),
        ("127.0.0.1 65536", "has printed no address"),
        ("node-1 80", "has printed no address"),
    ],
)
async def test_an_address_that_no_node_has_is_not_connected_to(
    place: str, why: str, allowed: Plane, streams: Streams
) -> None:
    with Client(allowed.url) as client:
        job, gang = running_job(allowed, client)
        asked = asyncio.create_task(refused(streams, job))
        listens(gang, await ordered(client, job), place)
        error = await asked
        assert error.code == "rank_unreachable" and why in error.detail


async def test_what_answers_in_the_place_of_a_gate_is_passed_over(allowed: Plane, streams: Streams) -> None:
    answered = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1 << 16)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()
        answered.set()

    with Client(allowed.url) as client:
        job, gang = running_job(allowed, client)
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as other:
            asked = asyncio.create_task(refused(streams, job))
            gate = await ordered(client, job)
            listens(gang, gate, f"127.0.0.1 {other.sockets[0].getsockname()[1]}")
            async with asyncio.timeout(PATIENCE_S):
                await answered.wait()
        gang.emit(("exec", {"id": gate.id, "rank": 0, "status": 0, "message": "exit status 0"}))
        again = await ordered(client, job, 2)
        gang.emit(("exec", {"id": again.id, "rank": 0, "status": 127, "message": "exit status 127"}))
        error = await asked
        assert error.code == "rank_unreachable" and "exit status 127" in error.detail


@pytest.mark.parametrize(
    ("headers", "params", "status", "code"),
    [
        ({"Authorization": "Bearer " + "x" * 40}, {}, 401, "unauthenticated"),
        ({**SIGNED, "Origin": "http://evil.example"}, {}, 403, "foreign_origin"),
        ({**SIGNED, "Host": "evil.example"}, {}, 403, "foreign_origin"),
        (SIGNED, {"prot": 1}, 422, "invalid_request"),
    ],
    ids=["token", "origin", "host", "parameter"],
)
async def test_a_handshake_is_guarded_as_every_request(
    allowed: Plane, headers: dict[str, str], params: dict[str, Any], status: int, code: str
) -> None:
    async def read(answer: httpx2.Response) -> None:
        await answer.aread()

    lone = httpx2.Limits(max_keepalive_connections=0)
    async with httpx2.AsyncClient(event_hooks={"response": [read]}, limits=lone, timeout=PATIENCE_S) as client:
        with pytest.raises(WebSocketUpgradeError) as refusal:
            async with client.websocket(f"{allowed.url}/v1/jobs/x/streams", headers=headers, params=params):
                pass
        answer = refusal.value.response
        assert (answer.status_code, answer.json()["code"]) == (status, code)
        own = {**SIGNED, "Origin": allowed.url}
        with pytest.raises(WebSocketUpgradeError) as refusal:
            async with client.websocket(f"{allowed.url}/v1/jobs/x/streams", headers=own):
                pass
        assert refusal.value.response.json()["code"] == "job_not_found"


async def test_a_server_without_a_token_opens_no_streams(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    open_to_all = settings.model_copy(update={"exec": True, "insecure_allow_remote": True, "host": "0.0.0.0"})
    with served(open_to_all) as plane, Client(plane.url) as client:
        assert not client.server().terminals
        job, _ = running_job(plane, client)
        async with Streams(plane.url) as streams:
            assert "without an access token" in (await refused(streams, job)).detail
