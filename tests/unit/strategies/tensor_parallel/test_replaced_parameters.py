"""Sharding replaces parameters; what was one weight stays one, and what was frozen stays frozen."""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from shardyard.strategies.layout import Refusal
from shardyard.strategies.param_shard import DimShard, shard_manually
from shardyard.strategies.tensor_parallel.replaced_parameters import same_weights
from shardyard.workers.dry_run.fake_tensors import FakeStore


class Tied(nn.Module):
    """A head that shares the embedding's weight, and a frozen norm."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm, self.head = nn.Embedding(6, 4), nn.LayerNorm(4), nn.Linear(4, 6)
        self.head.weight = self.embed.weight
        self.norm.requires_grad_(False)


@pytest.fixture
def mesh() -> Iterator[DeviceMesh]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield init_device_mesh("cpu", (2,))
    dist.destroy_process_group()


def sharded(mesh: DeviceMesh, embed: ParallelStyle) -> Tied:
    model = Tied()
    with same_weights(model):
        parallelize_module(model, mesh, {"embed": embed, "norm": SequenceParallel(), "head": ColwiseParallel()})
    return model


def test_a_tied_weight_stays_one_and_a_frozen_one_frozen(mesh: DeviceMesh) -> None:
    model = sharded(mesh, RowwiseParallel())
    assert model.head.weight is model.embed.weight
    assert {name: value.requires_grad for name, value in model.named_parameters()} == {
        "embed.weight": True,
        "norm.weight": False,
        "norm.bias": False,
        "head.bias": True,
    }


def test_a_weight_that_its_places_shard_differently_is_refused(mesh: DeviceMesh) -> None:
    with pytest.raises(Refusal, match=r"embed\.weight and head\.weight of Tied are one weight") as refused:
        sharded(mesh, ColwiseParallel())  # of an embedding by columns
    assert refused.value.field == "layout.tensor"


def test_a_plan_that_leaves_out_a_place_of_a_weight_is_refused_by_its_name(mesh: DeviceMesh) -> None:
    with (
        pytest.raises(Refusal, match=r"the tensor plan of Tied leaves out head\.weight"),
        same_weights(model := Tied()),
    ):
        parallelize_module(model, mesh, {"embed": RowwiseParallel(), "norm": SequenceParallel()})


def test_a_weight_that_is_sharded_by_hand_stays_one_where_its_places_are_alike() -> None:
    rows, columns = (DimShard("tensor", dim, 2, 0) for dim in (0, 1))
    model = Tied()
    with same_weights(model):
        shard_manually(model.embed, "weight", rows)
        shard_manually(model.head, "weight", rows)
    assert model.head.weight is model.embed.weight and model.head.weight.shape == (3, 4)
    with pytest.raises(Refusal, match="shards them differently"), same_weights(model := Tied()):
        shard_manually(model.embed, "weight", rows)
        shard_manually(model.head, "weight", columns)


def test_a_model_that_ties_its_weights_itself_may_shard_them_as_it_likes() -> None:
    class SelfTied(Tied):
        def tie(self) -> None:
            self.head.weight = self.embed.weight

    with same_weights(model := SelfTied()):
        model.head.weight = nn.Parameter(torch.zeros(2, 2))
    assert model.head.weight is model.embed.weight
