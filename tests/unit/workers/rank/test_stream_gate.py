"""A gate in a process of its own, as beside a rank: who gets in, what a port and a terminal send, and what is left."""

import asyncio
import math
import socket
from pathlib import Path
from typing import Any

import pytest
from harness.gates import DIGEST, control, echo, end_streams, gate, opened, shown, terminal
from harness.patience import PATIENCE_S

from shardyard.workers.messages.stream_frames import CONTROL, DATA, MOST_FRAME, Stream, connected
from shardyard.workers.rank import stream_gate
from shardyard.workers.rank.stream_gate import Gate


async def name_of(process: asyncio.subprocess.Process, expected: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await asyncio.to_thread(Path(f"/proc/{process.pid}/comm").read_text) != f"{expected}\n":  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_a_port_of_the_loopback_gets_and_sends_every_byte() -> None:
    content = bytes(range(256)) * 4096  # 1 MiB
    async with gate() as (port, process), echo() as server:
        stream = await opened(port, port=server)
        assert await control(stream) == {"opened": True}
        await name_of(process, "streams:1")

        async def send() -> None:
            await stream.send(DATA, content)
            await stream.control({"eof": True})

        sending, returned = asyncio.create_task(send()), b""
        async with asyncio.timeout(PATIENCE_S):
            while (frame := await stream.read()) is not None and frame[0] == DATA:
                assert len(frame[1]) <= MOST_FRAME
                returned += frame[1]
        await sending
        assert returned == content and frame == (CONTROL, b'{"eof": true}')
        stream.close()
        await name_of(process, "streams:0")
        process.kill()
        assert process.stdout is not None
        log = (await process.stdout.read()).decode()
        assert log == f"local reached port {server} of the rank's node\n"


async def test_a_port_on_which_nothing_listens_is_named() -> None:
    with socket.socket() as held:  # so that no other process gets it
        held.bind(("127.0.0.1", 0))
        free = held.getsockname()[1]
        async with gate() as (port, _):
            stream = await opened(port, port=free)
            assert f"nothing accepts connections on port {free} there: " in (await control(stream))["error"]
            assert await stream.read() is None


@pytest.mark.parametrize(
    "hello",
    [
        {"token": "another", "actor": "x", "open": {"port": 1}},
        {"actor": "x", "open": {"port": 1}},
        {"token": None},
        [1],
    ],
    ids=["another token", "no token", "no text", "no object"],
)
async def test_who_has_no_token_gets_no_answer(hello: Any) -> None:
    async with gate() as (port, process):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        stream = Stream(reader, writer)
        await stream.control(hello)
        async with asyncio.timeout(PATIENCE_S):
            assert await stream.read() is None
        stream.abort()
        _, raw = await asyncio.open_connection("127.0.0.1", port)
        raw.write(b"GET / HTTP/1.1\r\n\r\n")
        raw.close()
        await raw.wait_closed()
        still = await terminal(port, "true")  # the gate continues
        assert await control(still) == {"exit": 0}
        assert process.returncode is None


async def test_what_is_no_message_ends_the_connection_and_says_nothing_in_the_log() -> None:
    """Neither of a connection without the token, nor of a client with one."""
    async with gate() as (port, process):
        stranger = await connected("127.0.0.1", port)
        stranger.put(CONTROL, b"[" * MOST_FRAME)
        client = await terminal(port, "cat")
        await client.control({"rows": math.inf})
        async with asyncio.timeout(PATIENCE_S):
            for stream in (stranger, client):
                while await stream.read() is not None:
                    pass
                stream.abort()
        process.kill()
        assert process.stdout is not None and process.stderr is not None
        assert await process.stdout.read() == b"local opened a terminal: cat\n"
        assert await process.stderr.read() == b""


async def test_a_gate_that_is_not_in_use_ends_and_one_in_use_does_not(capfd: pytest.CaptureFixture[str]) -> None:
    async with echo() as server:
        entered = Gate(DIGEST, linger_s=PATIENCE_S)
        serving = asyncio.create_task(entered.serve("127.0.0.1", "7-name"))
        port = await printed_port(capfd)
        stream = await opened(port, port=server)
        assert await control(stream) == {"opened": True}
        entered._linger_s = 0.2  # not before: a busy machine may take longer to get in
        _, pending = await asyncio.wait({serving}, timeout=1.0)
        assert pending
        await end_streams()
        async with asyncio.timeout(PATIENCE_S):
            await serving


async def test_there_is_room_for_so_many_streams(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stream_gate, "MOST_STREAMS", 1)
    async with echo() as server:
        entered = Gate(DIGEST, linger_s=PATIENCE_S)
        serving = asyncio.create_task(entered.serve("127.0.0.1", "7-name"))
        port = await printed_port(capfd)
        first = await opened(port, port=server)
        assert await control(first) == {"opened": True}
        entered._linger_s = 0.2
        second = await opened(port, port=server)
        assert "no room for more" in (await control(second))["error"]
        await end_streams()
        async with asyncio.timeout(PATIENCE_S):
            await serving


async def printed_port(capfd: pytest.CaptureFixture[str]) -> int:
    async with asyncio.timeout(PATIENCE_S):
        while not (text := capfd.readouterr().out):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return int(text.split()[-1])


async def test_a_long_frame_ends_the_connection() -> None:
    async with gate() as (port, _):
        stream = await terminal(port, "cat")
        stream.put(DATA, b"x" * (MOST_FRAME + 1))
        async with asyncio.timeout(PATIENCE_S):
            while await stream.read() is not None:
                pass


async def test_it_shows_what_a_terminal_prints_and_its_record_names_the_command() -> None:
    async with gate() as (port, process):
        stream = await terminal(port, "sh", "-c", "echo hello; exit 3")
        assert "hello" in await shown(stream, "hello")
        assert await control(stream) == {"exit": 3}
        process.kill()
        assert process.stdout is not None
        assert "local opened a terminal: sh -c echo hello; exit 3" in (await process.stdout.read()).decode()


def test_a_gate_without_a_name_says_what_is_missing(capfd: pytest.CaptureFixture[str]) -> None:
    assert stream_gate.main(["127.0.0.1"]) == 2
    assert "a name and a digest" in capfd.readouterr().out
