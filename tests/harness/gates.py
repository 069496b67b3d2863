"""Gates for streams to a rank without a cluster: a process in the rank's place, and frames as an API server sends them."""

import asyncio
import contextlib
import hashlib
import itertools
import os
import re
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from shardyard.api.client import ApiError, Client
from shardyard.api.client.streams import RankStream
from shardyard.workers.messages.exec_request import GATE, Exec
from shardyard.workers.messages.stream_frames import CONTROL, DATA, Stream, connected, read_control
from shardyard.workers.rank import command_runner
from shardyard.workers.rank.command_runner import Place
from shardyard.workers.rank.secret_mask import SecretMask

from .patience import PATIENCE_S

TOKEN = "a-token-of-a-gate" * 4
DIGEST = hashlib.sha256(TOKEN.encode()).hexdigest()
#: Streams that a test has opened, which end with its gate.
_OPENED: list[Stream] = []


@asynccontextmanager
async def gate(*before: str) -> AsyncIterator[tuple[int, asyncio.subprocess.Process]]:
    """The port of a gate, and its process. `before`: a command that starts it in its own place."""
    command = [*before, sys.executable, "-I", "-m", "shardyard.workers.rank.stream_gate", "127.0.0.1", "7-name", DIGEST]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE_S):
            *words, port = (await process.stdout.readline()).decode().split()
        assert words == ["7-name", "listens", "on", "127.0.0.1"]
        yield int(port), process
    finally:
        await end_streams()
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def echo() -> AsyncIterator[int]:
    """The port of a server that returns what it gets, to the end."""

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while content := await reader.read(1 << 16):
            writer.write(content)
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(accepted, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def end_streams() -> None:
    """End the streams that this test has opened."""
    while _OPENED:
        _OPENED.pop().abort()
    await asyncio.sleep(0.01)


async def opened(gate_port: int, token: str = TOKEN, **wanted: Any) -> Stream:
    """A stream that has said what it wants, and has no answer yet."""
    stream = await connected("127.0.0.1", gate_port)
    _OPENED.append(stream)
    await stream.control({"token": token, "actor": "local", "open": wanted})
    return stream


async def terminal(port: int, *command: str, keep: bool = False, rows: int = 24, columns: int = 80) -> Stream:
    """A stream to an open terminal."""
    stream = await opened(port, command=list(command), keep=keep, rows=rows, columns=columns, term="xterm")
    assert await control(stream) == {"opened": True}
    return stream


async def control(stream: Stream) -> dict[str, Any]:
    """The next control message; what is shown before it is left out."""
    async with asyncio.timeout(PATIENCE_S):
        while (frame := await stream.read()) is not None:
            if frame[0] == CONTROL:
                return read_control(frame[1])
    raise AssertionError("the connection has ended")


async def shown(stream: Stream, *parts: str) -> str:
    """What is shown until all of these parts were."""
    text = ""
    async with asyncio.timeout(PATIENCE_S):
        while not all(part in text for part in parts):
            frame = await stream.read()
            assert frame is not None and frame[0] == DATA, (frame, text)
            text += frame[1].decode()
    return text


async def gone(*pids: int) -> None:
    """Wait until these processes have ended."""
    async with asyncio.timeout(PATIENCE_S):
        while any(is_alive(pid) for pid in pids):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextmanager
def process(folder: Path, **variables: str) -> Iterator[int]:
    """A process that waits in a folder, as a trainer's; by its id."""
    env = {"PATH": os.environ["PATH"], **variables}
    with subprocess.Popen(["sleep", "1000"], cwd=folder, env=env, start_new_session=True) as waiting:
        try:
            yield waiting.pid
        finally:
            waiting.kill()


@contextmanager
def serving(folder: Path) -> Iterator[int]:
    """A server of the folder's files, by its port."""
    command = [sys.executable, "-u", "-m", "http.server", "--bind", "127.0.0.1", "0"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            found = re.search(r"port (\d+)", server.stdout.readline())
            assert found
            yield int(found[1])
        finally:
            server.kill()


@contextmanager
def opening_gates(client: Client, job: str, emit: Callable[..., None], pid: int) -> Iterator[None]:
    """While the block runs, gates that are ordered at ranks of the job run beside the process `pid`, and `emit` gets their events."""
    ended, numbers = threading.Event(), itertools.count(1)
    running: dict[str, threading.Thread] = {}

    def run(order: Exec) -> None:
        def add(lines: list[bytes]) -> bool:
            texts = [line.decode() for line in lines]
            if texts:
                emit(("log", {"rank": order.rank, "first": next(numbers), "stream": "gate", "lines": texts}))
            return True

        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        own = {"PATH": path, "RANK": str(order.rank), "SHARDYARD_JOB": job, "SHARDYARD_ATTEMPT": "1"}
        place = Place(pid, False, SecretMask(), ended.is_set, own)
        end = command_runner.run(order, place, add)
        if not ended.is_set():
            emit(("exec", {"id": order.id, "rank": order.rank, "status": end.status, "message": end.message}))

    def watch() -> None:
        while not ended.wait(0.05):
            items: list[Any] = []
            with contextlib.suppress(ApiError):  # the API is stopped for a while
                items = client.execs(job).items
            for one in items:
                if one.command[0] == GATE and one.id not in running:
                    order = Exec(one.id, one.rank, tuple(one.command), one.seconds)
                    running[one.id] = threading.Thread(target=run, args=[order], daemon=True)
                    running[one.id].start()

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        for thread in (watching, *running.values()):
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


async def printed(stream: RankStream, *parts: str) -> str:
    """What a terminal shows until it has shown all `parts`."""
    text = ""
    async with asyncio.timeout(PATIENCE_S):
        while not all(part in text for part in parts):
            message = await stream.receive()
            assert isinstance(message, bytes), (message, text)
            text += message.decode()
    return text
