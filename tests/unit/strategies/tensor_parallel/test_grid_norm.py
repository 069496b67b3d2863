"""Norms over a grid equal torch's on whole tensors, forward and backward, and send a few numbers per token."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from harness.grids import block, counted, grid, numbers
from harness.ranks import spawn
from torch import Tensor

from shardyard.strategies.tensor_parallel.grid import Grid
from shardyard.strategies.tensor_parallel.grid_norm import Over, copied, grid_layer_norm, grid_rms_norm

BATCH, SEQ, DIM, EPS = 4, 3, 6, 1e-5


def _run(kind: str, on: Grid | None, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    if on is None:
        return F.layer_norm(x, (DIM,), weight, bias, EPS) if kind == "layer" else F.rms_norm(x, (DIM,), weight, EPS)
    if kind == "layer":
        return grid_layer_norm(x, weight, bias, Over(DIM, EPS, on.row, (on.column,)))
    return grid_rms_norm(x, weight, Over(DIM, EPS, on.row, (on.column,)))


def _compare(rank: int, world: int, port: int, kind: str, mean: float) -> tuple[float, dict[str, Any]]:
    on = grid(rank, world, port)
    whole = [numbers(BATCH, SEQ, DIM) + mean, numbers(DIM, seed=1), numbers(DIM, seed=2)]
    grad = numbers(BATCH, SEQ, DIM, seed=3)
    own = [block(whole[0], on, rows=0, columns=2), *(block(value, on, rows=None, columns=0) for value in whole[1:])]
    for value in (*whole, *own):
        value.requires_grad_()
    expected = _run(kind, None, *whole)
    expected.backward(grad)
    with counted(on) as traffic:
        found = _run(kind, on, *own)
        found.backward(block(grad, on, rows=0, columns=2))
    used = 3 if kind == "layer" else 2
    pairs = [(found, block(expected, on, rows=0, columns=2)), (own[0].grad, block(whole[0].grad, on, 0, 2))]  # type: ignore[arg-type]
    pairs += [(mine.grad, block(all_.grad, on, None, 0)) for mine, all_ in zip(own[1:used], whole[1:used], strict=True)]  # type: ignore[arg-type]
    worst = max((a - b).abs().max().item() for a, b in pairs if a is not None)
    return worst, {axis: kinds["all_reduce"]["elements"] for axis, kinds in traffic.to_json().items()}


@pytest.mark.parametrize(("kind", "statistics", "parameters"), [("layer", 4, 2), ("rms", 2, 1)])
def test_norms_equal_whole_ones(kind: str, statistics: int, parameters: int) -> None:
    for worst, elements in spawn(_compare, 4, kind, 0.0):
        assert worst < 1e-13
        assert elements == {"row": statistics * BATCH * SEQ / 2, "column": parameters * DIM / 2}


def test_a_large_mean_costs_no_digits_of_the_variance() -> None:
    for worst, _ in spawn(_compare, 4, "layer", 1e6):
        assert worst < 1e-8  # E[x²] − E[x]² would keep four digits of the variance


def _sum_of_copies(rank: int, world: int, port: int) -> list[float]:
    on = grid(rank, world, port)
    weight = torch.ones(2, dtype=torch.float64, requires_grad=True)
    (copied(weight, (on.row, on.column)) * (rank + 1)).sum().backward()
    assert weight.grad is not None
    return weight.grad.tolist()


def test_the_gradient_of_a_copy_is_the_sum_over_the_grid() -> None:
    assert spawn(_sum_of_copies, 4) == [[10.0, 10.0]] * 4
