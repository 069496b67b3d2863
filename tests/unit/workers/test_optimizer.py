"""The learning rate is a function of the step alone; decay touches matrices only; state exists from the start."""

import pytest
import torch

from shardyard.strategies.piece import Piece
from shardyard.workers.optimizer import (
    learning_rate,
    make_optimizer,
    optimizer_pieces,
    set_updates_done,
    updates_done,
)
from shardyard.workers.spec import OptimizerSpec, ScheduleSpec


def test_warms_up_and_falls_to_the_ratio() -> None:
    spec = ScheduleSpec(warmup=4, min_ratio=0.1)
    rates = [learning_rate(step, 20, 1.0, spec) for step in range(1, 21)]
    assert rates[:4] == [0.25, 0.5, 0.75, 1.0]
    assert rates[4:] == sorted(rates[4:], reverse=True)
    assert rates[-1] == pytest.approx(0.1)


@pytest.mark.parametrize(("name", "halfway"), [("linear", 0.5), ("cosine", 0.5), ("constant", 1.0)])
def test_halfway(name: str, halfway: float) -> None:
    assert learning_rate(10, 20, 1.0, ScheduleSpec(name=name, min_ratio=0.0)) == pytest.approx(halfway)


def pieces() -> list[Piece]:
    shapes = {"matrix": (3, 4), "bias": (4,)}
    return [Piece(n, s, (0,) * len(s), torch.ones(s), frozenset()) for n, s in shapes.items()]


@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_decays_matrices_only(name: str) -> None:
    parts = pieces()
    optimizer = make_optimizer(parts, OptimizerSpec(name=name, lr=0.1, weight_decay=0.5))
    for piece in parts:
        piece.tensor.grad = torch.zeros_like(piece.tensor)
    optimizer.step()
    assert (parts[0].tensor < 1).all()
    assert (parts[1].tensor == 1).all()


def test_state_is_pieces_of_the_same_rectangles() -> None:
    parts = pieces()
    optimizer = make_optimizer(parts, OptimizerSpec())
    found = {piece.name: piece.shape for piece in optimizer_pieces(parts, optimizer)}
    assert found == {
        f"optimizer.{k}.{n}": s for k in ("exp_avg", "exp_avg_sq") for n, s in (("matrix", (3, 4)), ("bias", (4,)))
    }
    set_updates_done(optimizer, 7)
    assert updates_done(optimizer) == 7
