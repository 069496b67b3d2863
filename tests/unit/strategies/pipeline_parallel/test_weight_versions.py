"""Versions of weights: an update changes none that a living graph uses, and what is saved are the versions before the newest."""

import pytest
import torch
from torch import nn

from shardyard.strategies.param_shard import Parameter, ParamShard
from shardyard.strategies.pipeline_parallel.weight_versions import WeightVersions


class Held:
    """One weight with its versions; `mixed`: the optimizer updates a wider master."""

    def __init__(self, mixed: bool, versions: int = 2) -> None:
        self.value = nn.Parameter(torch.full((2, 2), torch.nan, dtype=torch.bfloat16 if mixed else torch.float64))
        parameter = Parameter("w", self.value, (), (2, 2))
        master = torch.empty(2, 2) if mixed else parameter.local.data
        self.shard: ParamShard = parameter.shard(master)
        self.versions = WeightVersions([(parameter, self.shard)], versions)
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
    assert (older.name, older.otherwise) == ("previous.w", ("w",))
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


@pytest.mark.parametrize(
    ("saved", "used"),
    [
        ({"w": 7}, [7, 7, 7, 7, 8]),
        ({"w": 7, "previous.w": 6}, [6, 6, 6, 7, 8]),
        ({"w": 7, "previous.w": 6, "previous.2.w": 5}, [5, 5, 6, 7, 8]),
        ({"w": 7, "previous.w": 6, "previous.2.w": 5, "previous.3.w": 4}, [4, 5, 6, 7, 8]),
    ],
    ids=str,
)
def test_the_oldest_saved_version_stands_for_those_before_it(saved: dict[str, int], used: list[int]) -> None:
    """`used`: the versions three updates old, from step to step after a checkpoint of `saved`."""
    held = Held(mixed=False, versions=4)
    for shard in (held.shard, *held.versions.older):
        name = next(name for name in (shard.name, *shard.otherwise) if name in saved)
        shard.tensor.fill_(saved[name])
    held.versions.begin()
    found = []
    for _ in used:
        held.versions.use(3)
        found.append(held.value[0, 0].item())
        held.versions.use(0)
        held.update()
    assert found == used
