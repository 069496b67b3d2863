"""Ranks that are ready first wait for the others without the time limit of a collective."""

import time
from collections.abc import Iterator

import pytest
import torch.distributed as dist
from harness.ranks import group, spawn

from shardyard.workers.ready_ranks import wait_for_all

LIMIT_S = 2.0


@pytest.fixture
def alone() -> Iterator[None]:
    """A world of one rank."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def _wait(rank: int, world: int, port: int) -> tuple[int, list[int]]:
    group(rank, world, port, limit_s=LIMIT_S)
    beats: list[int] = []
    for slow in range(world):
        if rank == slow:
            time.sleep(1.5 * LIMIT_S)
        wait_for_all("data", lambda: beats.append(1))
        gathered = [-1] * world
        dist.all_gather_object(gathered, rank)
    return len(beats), gathered


def test_a_rank_waits_longer_than_a_collective_would_and_beats() -> None:
    for beats, gathered in spawn(_wait, 2):
        assert beats > 3 and gathered == [0, 1]


def test_a_rank_alone_waits_for_none(alone: None) -> None:
    beats: list[int] = []
    for _ in range(2):
        wait_for_all("data", lambda: beats.append(1))
    assert beats == []


def test_the_wait_has_an_end(alone: None) -> None:
    world = dist.group.WORLD
    assert world is not None
    world.get_group_store().add("ready: data", -1)  # as if another rank had not called it
    wait_for_all("data", timeout_s=0.1)
