"""What torch's flight recorder kept is read, and not read where a version of torch was not tried."""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

from shardyard.strategies import torch_version
from shardyard.workers.trainer.flight_recorder import collectives


@pytest.fixture
def entered() -> Iterator[None]:
    """A group of one rank that ran two collectives."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        dist.all_reduce(torch.ones(2))
        dist.all_reduce(torch.ones(2))
        yield
    finally:
        dist.destroy_process_group()


@pytest.mark.usefixtures("entered")
def test_the_last_collective_of_a_group_is_found() -> None:
    (fact,) = [fact for fact in collectives() if fact["group"] == "world"]
    assert fact["ranks"] == [0] and fact["entered"] >= 2


@pytest.mark.usefixtures("entered")
def test_another_torch_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_version, "TRIED", ("1.0.",))
    assert collectives() == []


def test_groups_that_are_gone_are_left_out(entered: None) -> None:
    dist.destroy_process_group()
    assert collectives() == []
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
