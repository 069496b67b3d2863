"""A client of NCCL's RAS subsystem: asks the RAS thread of a process on this node for the status of its job. A failure is no answer.

Every NCCL process since 2.24 has a RAS thread, and listens at NCCL_RAS_ADDR (`localhost:28028`). Processes of one user share the port,
so the kernel chooses which one answers, perhaps one of another job. Then the client asks again.

The protocol is lines of text, as in `src/ras/client.cc` and `src/ras/client_support.cc` of NVIDIA/nccl:

    CLIENT PROTOCOL 2   → SERVER PROTOCOL 2
    TIMEOUT 1           → OK      (seconds for which the thread waits for threads of other processes)
    SET FORMAT json     → OK      (before 2.28.7: ERROR: Unknown command …; the status is text then)
    VERBOSE STATUS      → the status, then the end of the connection

RAS only reads counters, and never waits for a collective. It may report a hung job as healthy (NVIDIA/nccl#1730).
"""

import asyncio
import contextlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from ..messages.nccl_report import RasReport
from .nccl_status import NotAStatus, read_json, read_text

ADDRESS: Final = "localhost:28028"
#: Seconds for all attempts. RAS answers in milliseconds unless a process has just stopped to answer.
LIMIT_S: Final = 3.0
#: Seconds that RAS may wait for other processes; the protocol takes whole ones.
PEERS_S: Final = 1
#: Seconds for the lines before the status, which a running RAS thread answers at once.
GREETING_S: Final = 0.5
#: Connections before the client gives up: to stopped processes, and to those of other jobs on this node.
ATTEMPTS: Final = 16
#: Maximum length of a status. One of 4096 ranks in eight communicators each has about 23 MB.
MOST_BYTES: Final = 32 << 20
#: Maximum length of any other line.
MOST_LINE: Final = 4096


async def ask(env: Mapping[str, str], hosts: Collection[str], pid: int, limit_s: float = LIMIT_S) -> RasReport | None:
    """The report about the job of process `pid` of this node, whose addresses are `hosts`. None without one within `limit_s`."""
    if env.get("NCCL_RAS_ENABLE") == "0":
        return None
    host, _, port = (env.get("NCCL_RAS_ADDR") or ADDRESS).rpartition(":")
    with contextlib.suppress(OSError, ValueError, OverflowError, EOFError, NotAStatus):  # TimeoutError is an OSError
        async with asyncio.timeout(limit_s):
            for _ in range(ATTEMPTS):
                answer = await _answer(host.strip("[]"), int(port))
                found = None if answer is None else await asyncio.to_thread(_read, answer, hosts, pid)
                if found is not None:
                    return found
    return None


def _read(answer: "Answer", hosts: Collection[str], pid: int) -> RasReport | None:
    text = answer.status.decode(errors="replace")
    return read_json(text, hosts, pid) if answer.is_json else read_text(text)


@dataclass(frozen=True)
class Answer:
    """A status of RAS."""

    is_json: bool
    status: bytes


async def _answer(host: str, port: int) -> Answer | None:
    """None if the process is stopped: the kernel still accepts connections to it. Raises OSError, ValueError, EOFError."""
    writer: asyncio.StreamWriter | None = None
    try:
        try:
            async with asyncio.timeout(GREETING_S):
                reader, writer = await asyncio.open_connection(host, port, limit=MOST_LINE)
                is_json = await _greet(reader, writer)
        except TimeoutError:
            return None
        writer.write(b"VERBOSE STATUS\n")
        return Answer(is_json, await _rest(reader))
    finally:
        if writer is not None:
            writer.close()


async def _greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Prepare the connection for a status; returns whether it will be JSON. Raises ValueError, EOFError."""
    if not (await _command(reader, writer, "CLIENT PROTOCOL 2")).startswith("SERVER PROTOCOL "):
        raise ValueError("this is no RAS thread")
    await _command(reader, writer, f"TIMEOUT {PEERS_S}")
    return await _command(reader, writer, "SET FORMAT json") == "OK"


async def _command(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, command: str) -> str:
    """The line that answers it. Raises ValueError if it is too long, EOFError if the connection ends."""
    writer.write(f"{command}\n".encode())
    line = await reader.readline()
    if not line.endswith(b"\n"):
        raise EOFError(f"the connection ended in the answer to {command}")
    return line.decode(errors="replace").strip()


async def _rest(reader: asyncio.StreamReader) -> bytes:
    """All until the end of the connection. Raises ValueError if it is too long."""
    status = bytearray()
    while chunk := await reader.read(1 << 16):
        status += chunk
        if len(status) > MOST_BYTES:
            raise ValueError(f"the status has more than {MOST_BYTES} bytes")
    return bytes(status)
