"""Lookups over a cube equal those of a whole table, for any vocabulary, forward and backward; and so do positions."""

import pytest
import torch
import torch.nn.functional as F
from harness.cubes import counted, cube, elements, of_way, part
from harness.grids import numbers
from harness.ranks import spawn

from shardyard.strategies.tensor_parallel.cube_table import cube_lookup, cube_whole

BATCH, SEQ, DIM = 4, 3, 6


def _lookup(rank: int, world: int, port: int, vocab: int) -> tuple[float, float, float]:
    on = cube(rank, world, port)
    tokens = torch.randint(0, vocab, (BATCH, SEQ), generator=torch.Generator().manual_seed(0))
    own_tokens = part(tokens, [(on.depth, 0), (on.row, 0)])
    cuts = [(on.column, 0), (on.row, 1), (on.depth, 0)]
    table = numbers(vocab, DIM).requires_grad_()
    own_table = part(table.detach(), cuts).requires_grad_()
    gradient = numbers(BATCH, SEQ, DIM, seed=1)
    rows = F.embedding(tokens, table)
    rows.backward(gradient)
    with counted(on) as forward:
        own_rows = cube_lookup(own_tokens, own_table, vocab, on)
    with counted(on) as backward:
        own_rows.backward(of_way(gradient, on, on.into))
    assert table.grad is not None and own_table.grad is not None
    pairs = [(own_rows, of_way(rows, on, on.into)), (own_table.grad, part(table.grad, cuts))]
    for found, expected in pairs:
        assert found.shape == expected.shape
    worst = max((found - expected).abs().max().item() for found, expected in pairs if found.numel())
    return worst, elements(forward), elements(backward)


@pytest.mark.parametrize("vocab", [16, 17, 1])
def test_a_table_looks_up_as_a_whole_one_does(vocab: int) -> None:
    for worst, forward, backward in spawn(_lookup, 8, vocab):
        assert worst < 1e-12
        if vocab == 16:
            assert backward == (vocab * DIM + BATCH * SEQ * DIM) / 8
            assert forward == backward + BATCH * SEQ / 4


def _positions(rank: int, world: int, port: int, count: int) -> float:
    on = cube(rank, world, port)
    cuts = [(on.row, 1), (on.depth, 0), (on.column, 0)]
    table = numbers(count, DIM)
    own = part(table, cuts).requires_grad_()
    whole = cube_whole(own, count, on)
    gradient = numbers(count, DIM, seed=1)
    whole.backward(part(gradient, [(on.row, 1)]) * (rank + 1))
    assert own.grad is not None
    times = sum(other + 1 for other in range(world) if other // 2 % 2 == on.row.index)
    expected = part(gradient, cuts) * times
    worst = (whole - part(table, [(on.row, 1)])).abs().max().item()
    return max(worst, (own.grad - expected).abs().max().item() if own.numel() else 0.0)


@pytest.mark.parametrize("count", [8, 7, 1])
def test_few_rows_are_gathered_and_their_gradients_summed(count: int) -> None:
    assert max(spawn(_positions, 8, count)) < 1e-13


def _rounded(rank: int, world: int, port: int) -> list[float]:
    on = cube(rank, world, port)
    table = torch.zeros(1, 1, dtype=torch.bfloat16, requires_grad=True)
    tokens = torch.zeros(1, 1000, dtype=torch.int64)
    cube_lookup(tokens, table, 4, on).backward(torch.ones(1, 1000, 1, dtype=torch.bfloat16))
    assert table.grad is not None
    return table.grad.flatten().tolist()


def test_a_row_that_many_tokens_use_is_summed_in_fp32() -> None:
    """4,000 tokens, of which 2,000 in each half of the depth; the first row is on the ranks of column 0 and depth 0."""
    found = spawn(_rounded, 8)
    assert [value for (value,) in found] == [4000.0, 0.0, 4000.0, 0.0, 0.0, 0.0, 0.0, 0.0]
