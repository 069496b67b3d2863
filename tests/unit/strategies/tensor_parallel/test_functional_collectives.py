"""Functional collectives equal torch's public ones, and only a torch that was tried gets a tensor plan."""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from shardyard.strategies.process_groups import group_named
from shardyard.strategies.tensor_parallel.functional_collectives import (
    all_gather,
    all_reduce,
    arrived,
    reduce_scatter,
)


@pytest.fixture
def world() -> Iterator[str]:
    """The name of a group of one rank."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        assert dist.group.WORLD is not None
        yield dist.group.WORLD.group_name
    finally:
        dist.destroy_process_group()


def test_they_equal_the_public_ones(world: str) -> None:
    part = torch.arange(6, dtype=torch.float64).view(3, 2)
    public: Tensor = part.clone()
    dist.all_reduce(public)
    assert torch.equal(arrived(all_reduce(part, world)), public)
    assert torch.equal(arrived(all_gather(part, 1, world)), public)
    assert torch.equal(arrived(reduce_scatter(part, 1, world)), public)


def test_a_group_is_found_by_its_name(world: str) -> None:
    assert group_named(world) is dist.group.WORLD
    with pytest.raises(RuntimeError):
        group_named("nothing")
