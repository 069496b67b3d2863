"""Two versions of weights: an update changes none that a living graph uses, and what is saved is the version before the newest."""

import pytest
import torch
from torch import nn

from shardyard.strategies.param_shard import Parameter, ParamShard
from shardyard.strategies.pipeline_parallel.weight_versions import WeightVersions


class Held:
    """One weight with its versions; `mixed`: the optimizer updates a wider master."""

    def __init__(self, mixed: bool) -> None:
        self.value = nn.Parameter(torch.full((2, 2), torch.nan, dtype=torch.bfloat16 if mixed else torch.float64))
        parameter = Parameter("w", self.value, (), (2, 2))
        master = torch.empty(2, 2) if mixed else parameter.local.data
        self.shard: ParamShard = parameter.shard(master)
        self.versions = WeightVersions([(parameter, self.shard)])
        self.mixed = mixed

    def publish(self) -> None:
        if self.mixed:
            self.value.data.copy_(self.shard.tensor)

    def update(self) -> None:
        self.versions.turn()
        self.shard.tensor.add_(1)
        self.publish()


@pytest.mark.parametrize("mixed", [False, True])
def test_each_version_is_what_it_was_after_its_update(mixed: bool) -> None:
    held = Held(mixed)
    held.shard.tensor.fill_(0)
    held.publish()
    held.versions.begin()
    (older,) = held.versions.older
    assert (older.name, older.otherwise) == ("previous.w", "w")
    assert older.tensor.eq(0).all()
    for step in range(1, 5):
        held.update()
        assert held.value.eq(step).all() and held.shard.tensor.eq(step).all()
        assert older.tensor.eq(step - 1).all()
        held.versions.use(1)
        assert held.value.eq(step - 1).all()
        held.versions.use(0)
        assert held.value.eq(step).all()


@pytest.mark.parametrize("mixed", [False, True])
def test_a_graph_outlives_one_update(mixed: bool) -> None:
    held = Held(mixed)
    held.shard.tensor.fill_(3)
    held.publish()
    held.versions.begin()
    given = torch.ones(1, 2, dtype=held.value.dtype, requires_grad=True)
    output = given @ held.value.t()  # saves a view of the weight
    held.update()
    held.versions.use(1)
    output.sum().backward()
    assert given.grad is not None and given.grad.eq(6).all()


def test_a_restored_older_version_stays() -> None:
    held = Held(mixed=False)
    held.shard.tensor.fill_(2)
    held.versions.older[0].tensor.fill_(1)
    held.versions.begin()
    assert held.versions.older[0].tensor.eq(1).all()
