"""A RAS thread of NCCL as a client sees it: a socket that speaks its protocol, with a status written by hand.

The JSON has the fields of NCCL's documentation (`src/ras/client_support.cc` of NVIDIA/nccl writes them), the text its lines.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

HERE = "127.0.0.1"
KINDS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")


@dataclass
class RasServer:
    """Each connection gets the next of the statuses, and then the last one again. Until it ends, a test may read what it received."""

    statuses: Sequence[bytes]
    knows_json: bool = True
    silent: int = 0  # the first connections get no answer at all
    endless: bool = False  # repeats the status until the client leaves
    cuts: bool = False  # ends the connection in the greeting
    port: int = 0
    received: list[list[str]] = field(default_factory=list)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    tasks: list["asyncio.Task[Any]"] = field(default_factory=list)

    @property
    def env(self) -> dict[str, str]:
        return {"NCCL_RAS_ADDR": f"{HERE}:{self.port}"}

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(self.received)
        commands: list[str] = []
        self.received.append(commands)
        self.writers.append(writer)
        task = asyncio.current_task()
        assert task is not None
        self.tasks.append(task)
        with contextlib.suppress(ConnectionError):
            while line := (await reader.readline()).decode().strip():
                commands.append(line)
                if number < self.silent:
                    continue
                if self.cuts or line.endswith("STATUS"):
                    break
                writer.write(self._reply(line))
            if line and not self.cuts:
                await self._send(writer, self.statuses[min(number - self.silent, len(self.statuses) - 1)])
        writer.close()

    async def _send(self, writer: asyncio.StreamWriter, status: bytes) -> None:
        writer.write(status)
        await writer.drain()
        while self.endless:
            writer.write(status)
            await writer.drain()
            await asyncio.sleep(0)

    def _reply(self, line: str) -> bytes:
        if line.startswith("CLIENT PROTOCOL"):
            return b"SERVER PROTOCOL 2\n"
        if line.startswith("SET FORMAT") and not self.knows_json:
            return f"ERROR: Unknown command {line}\n".encode()
        return b"OK\n"


@contextlib.asynccontextmanager
async def ras_server(*statuses: bytes, **how: Any) -> AsyncIterator[RasServer]:
    """A server on a free port of this machine."""
    ras = RasServer(statuses, **how)
    server = await asyncio.start_server(ras.answer, HERE, 0)
    ras.port = server.sockets[0].getsockname()[1]
    try:
        yield ras
    finally:
        server.close()
        for writer in ras.writers:
            writer.transport.abort()
        await asyncio.gather(*ras.tasks, return_exceptions=True)


def process(rank: int, pid: int, **counts: int) -> dict[str, Any]:
    """A rank of a communicator that answers."""
    status = {
        "init_state": 0,
        "async_error": 0,
        "finalize_called": False,
        "destroy_flag": False,
        "abort_flag": False,
    }
    place = {"rank": rank, "host": HERE, "pid": pid, "cuda_dev": 0, "nvml_dev": rank}
    return place | {"status": status, "collective_counts": dict.fromkeys(KINDS, 0) | counts}


def gone(rank: int, pid: int, *, dead: bool = False, unresponsive: bool = True) -> dict[str, Any]:
    """A rank of a communicator that RAS misses."""
    status = {"unresponsive": unresponsive, "considered_dead": dead}
    return {"rank": rank, "host": HERE, "pid": pid, "cuda_dev": 0, "nvml_dev": rank, "status": status}


def communicator(name: str, *ranks: Mapping[str, Any], missing: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    return {
        "hash": name,
        "secondary_hash": "0x1:0x2",
        "size": len(ranks) + len(missing),
        "ranks_count": len(ranks),
        "missing_ranks_count": len(missing),
        "ranks": list(ranks),
        "missing_ranks": list(missing),
    }


def status(*communicators: Mapping[str, Any]) -> bytes:
    """The answer to `STATUS` after `SET FORMAT json`."""
    data = {
        "nccl_version": "2.29.1",
        "cuda_runtime_version": 13000,
        "cuda_driver_version": 13000,
        "timestamp": "2026-11-24 19:00:00",
        "communicators_count": len(communicators),
        "communicators": list(communicators),
        "ras": {"collection_time_sec": 0.001, "timeouts_count": 0},
    }
    return json.dumps(data, indent=2).encode()


#: NCCL 2.27 of four processes: rank 2 lags by one AllReduce in the first communicator, process 103 is stopped.
TEXT = """NCCL version 2.27.7 compiled with CUDA 12.9
CUDA runtime version 12090, driver version 12090

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      1          4            1          4        4

Communicators... (1.01s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1         3         4         4   RUNNING  INCOMPLETE,MISMATCH

Errors
======

INCOMPLETE
  Missing communicator data from 1 job process
  Process 103 on node 127.0.0.1 managing GPU 3

#0-0 (27a079b828ff1a75) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 3 -- GPU 3 managed by process 103 on node 127.0.0.1

Warnings
========

TIMEOUT
  Encountered 1 communication timeout while gathering communicator data

#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different status
  2 ranks have status RUNNING
  Rank 2 has status FINALIZE -- GPU 2 managed by process 102 on node 127.0.0.1
  Communicator ranks have different AllReduce operation counts
  2 ranks have launched up to operation 58
  Rank 2 has launched up to operation 57 -- GPU 2 managed by process 102 on node 127.0.0.1

  Communicator ranks have different SendRecv operation counts
  2 ranks have launched up to operation 8
  Rank 2 has not launched any operations -- GPU 2 managed by process 102 on node 127.0.0.1

"""
HEALTHY = TEXT[: TEXT.index("Errors\n")] + "Errors\n======\n\nWarnings\n========\n\n"
