"""On two GPUs: NCCL's own RAS subsystem answers our client. `make gpu-check` runs it where there are some."""

import asyncio
import os
import socket
from typing import Any

import pytest
import torch
import torch.distributed as dist
from harness.ranks import group, spawn

from shardyard.workers.rank.host import addresses
from shardyard.workers.rank.nccl_ras import ask

pytestmark = pytest.mark.gpu


def _lag(rank: int, world: int, port: int, address: str) -> tuple[int, Any]:
    """Rank 1 enters the second sum only after rank 0 has asked. Sums on the CPU go over gloo."""
    os.environ["NCCL_RAS_ADDR"] = address
    sums = torch.ones(4, device=group(rank, world, port, "cuda"))
    report = None
    dist.all_reduce(sums)
    if rank == 0:
        dist.all_reduce(sums)
        report = asyncio.run(ask(os.environ, addresses(), os.getpid(), limit_s=30.0))
    dist.all_reduce(torch.ones(1))
    if rank == 1:
        dist.all_reduce(sums)
    torch.cuda.synchronize()
    return os.getpid(), report


def test_ncclras_says_which_rank_lags() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip(f"needs 2 CUDA devices, this machine has {torch.cuda.device_count()}")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    (_, report), (late, _) = spawn(_lag, 2, address)
    assert report is not None, "no answer: is NCCL older than 2.24, or its RAS subsystem off?"
    (unequal,) = report.unequal
    assert unequal.op in ("AllReduce", "collective") and not report.missing
    assert [one.pid for one in unequal.counts[0].listed] == [late]
