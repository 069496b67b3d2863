"""The learning rate is a function of the step alone; decay touches matrices only; state exists from the start."""

import pytest
import torch

from shardyard.strategies.param_shard import ParamShard
from shardyard.workers.spec import OptimizerSpec, ScheduleSpec
from shardyard.workers.trainer.optimizer import (
    learning_rate,
    make_optimizer,
    optimizer_shards,
    set_updates_done,
    updates_done,
)


def test_warms_up_and_falls_to_the_ratio() -> None:
    spec = ScheduleSpec(warmup=4, min_ratio=0.1)
    rates = [learning_rate(step, 20, 1.0, spec) for step in range(1, 21)]
    assert rates[:4] == [0.25, 0.5, 0.75, 1.0]
    assert rates[4:] == sorted(rates[4:], reverse=True)
    assert rates[-1] == pytest.approx(0.1)


@pytest.mark.parametrize(("name", "halfway"), [("linear", 0.5), ("cosine", 0.5), ("constant", 1.0)])
@pytest.mark.parametrize("floor", [0.0, 0.2])
def test_halfway(name: str, halfway: float, floor: float) -> None:
    """Halfway between peak and floor."""
    rate = learning_rate(11, 21, 1.0, ScheduleSpec(name=name, min_ratio=floor))
    assert rate == pytest.approx(floor + (1 - floor) * halfway)


@pytest.mark.parametrize("name", ["linear", "cosine", "constant"])
@pytest.mark.parametrize("warmup", [0, 1])
def test_without_a_warm_up_the_first_step_has_the_peak(name: str, warmup: int) -> None:
    spec = ScheduleSpec(name=name, warmup=warmup, min_ratio=0.1)
    assert learning_rate(1, 20, 3.0, spec) == 3.0
    assert learning_rate(20, 20, 3.0, spec) == pytest.approx(3.0 if name == "constant" else 0.3)


@pytest.mark.parametrize("name", ["linear", "cosine", "constant"])
def test_a_job_of_one_step_trains_at_the_peak(name: str) -> None:
    assert learning_rate(1, 1, 3.0, ScheduleSpec(name=name)) == 3.0


def test_a_warm_up_that_is_longer_than_the_run_only_rises() -> None:
    assert [learning_rate(step, 3, 1.0, ScheduleSpec(warmup=4)) for step in (1, 2, 3)] == [0.25, 0.5, 0.75]


def shards() -> list[ParamShard]:
    shapes = {"matrix": (3, 4), "bias": (4,)}
    return [ParamShard(n, s, (0,) * len(s), torch.ones(s), frozenset()) for n, s in shapes.items()]


@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_decays_matrices_only(name: str) -> None:
    parts = shards()
    optimizer = make_optimizer(parts, OptimizerSpec(name=name, lr=0.1, weight_decay=0.5))
    for shard in parts:
        shard.tensor.grad = torch.zeros_like(shard.tensor)
    optimizer.step()
    assert (parts[0].tensor < 1).all()
    assert (parts[1].tensor == 1).all()


def test_state_is_pieces_of_the_same_slices() -> None:
    parts = shards()
    optimizer = make_optimizer(parts, OptimizerSpec())
    found = {shard.name: shard.shape for shard in optimizer_shards(parts, optimizer)}
    assert found == {
        f"optimizer.{k}.{n}": s for k in ("exp_avg", "exp_avg_sq") for n, s in (("matrix", (3, 4)), ("bias", (4,)))
    }
    set_updates_done(optimizer, 7)
    assert updates_done(optimizer) == 7


@pytest.mark.parametrize(("name", "updates"), [("adamw", 3), ("sgd", 0)])
def test_a_rank_without_shards_counts_its_updates(name: str, updates: int) -> None:
    """Rank 0 writes the number into a checkpoint; beside parameter servers it has no shards."""
    spec = OptimizerSpec.model_validate({"name": name})
    optimizer = make_optimizer([], spec)
    for _ in range(3):
        optimizer.step()
    assert updates_done(optimizer) == updates
    set_updates_done(optimizer, 7)
    assert updates_done(optimizer) == (7 if updates else 0)
    assert optimizer_shards([], optimizer) == []
