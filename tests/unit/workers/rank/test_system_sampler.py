"""Samples of a real process's use while its trainer lives."""

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from shardyard.workers.messages.event_buffer import Spool
from shardyard.workers.rank.node_use import NodeUse
from shardyard.workers.rank.system_sampler import SystemSampler, sampler_of


def trainer() -> Any:
    return cast(Any, SimpleNamespace(pid=os.getpid(), gone=asyncio.Event()))


async def test_samples_are_added_until_the_trainer_has_ended() -> None:
    spool, mine = Spool(1 << 20), trainer()
    following = asyncio.ensure_future(sampler_of(mine, [], {"cache": "/tmp"}, True).follow(mine, spool, 0.01))
    await spool.wait(1, 60)
    mine.gone.set()
    await following
    first, second, *_ = spool.newer(0)
    assert first["kind"] == second["kind"] == "system"
    assert first["data"]["rank"].keys() == {"memory"}
    assert second["data"]["rank"].keys() == {"memory", "cpu"}
    assert "memory_available" in first["data"]["node"]


async def test_a_spool_that_is_half_full_gets_no_samples() -> None:
    spool, mine = Spool(100), trainer()
    spool.add("log", {"lines": ["x" * 100]})
    sampled = asyncio.Event()

    class Counting(SystemSampler):
        def sample(self) -> Any:
            loop.call_soon_threadsafe(sampled.set)
            return super().sample()

    loop = asyncio.get_running_loop()
    following = asyncio.ensure_future(Counting(lambda: mine.pid, None, None).follow(mine, spool, 0.001))
    await sampled.wait()
    mine.gone.set()
    await following
    assert spool.last == 1


def test_only_the_first_rank_of_a_node_samples_it() -> None:
    assert SystemSampler(lambda: None, None, None).sample().node is None
    assert SystemSampler(lambda: None, None, NodeUse(Path("/"))).sample().node


@pytest.mark.parametrize("pid", [None, 2**22 + 1])
def test_a_rank_without_a_process_has_no_values(pid: int | None) -> None:
    assert SystemSampler(lambda: pid, None, None).sample().rank == {}


def test_a_sample_names_the_gpu_also_without_a_driver() -> None:
    sampler = SystemSampler(lambda: None, "3", None)
    assert [sampler.sample().gpu for _ in range(2)] == ["3", "3"]
    assert SystemSampler(lambda: None, None, None).sample().gpu is None
