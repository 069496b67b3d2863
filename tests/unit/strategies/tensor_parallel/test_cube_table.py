"""Lookups over a cube equal those of a whole table, for any vocabulary, forward and backward; and so do positions."""

import torch
import torch.nn.functional as F
from harness.cubes import counted, cube, elements, of_way, part
from harness.grids import numbers
from harness.ranks import spawn

from shardyard.strategies.tensor_parallel.cube import Cube
from shardyard.strategies.tensor_parallel.cube_table import cube_lookup, cube_places, cube_whole

BATCH, SEQ, DIM = 4, 3, 6


VOCABULARIES, COUNTS = (16, 17, 1), (8, 7, 1)


def _tables(rank: int, world: int, port: int) -> tuple[list[tuple[float, float, float]], list[float], float]:
    on = cube(rank, world, port)
    lookups = [_lookup(on, vocab) for vocab in VOCABULARIES]
    return lookups, [_positions(on, rank, count) for count in COUNTS], _rounded(on)


def _lookup(on: Cube, vocab: int) -> tuple[float, float, float]:
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


def _positions(on: Cube, rank: int, count: int) -> float:
    cuts = [(on.row, 1), (on.depth, 0), (on.column, 0)]
    table = numbers(count, DIM)
    own = part(table, cuts).requires_grad_()
    whole = cube_whole(own, count, on)
    gradient = numbers(count, DIM, seed=1)
    whole.backward(part(gradient, [(on.row, 1)]) * (rank + 1))
    assert own.grad is not None
    times = sum(other + 1 for other in range(8) if other // 2 % 2 == on.row.index)
    expected = part(gradient, cuts) * times
    worst = (whole - part(table, [(on.row, 1)])).abs().max().item()
    return max(worst, (own.grad - expected).abs().max().item() if own.numel() else 0.0)


def _places(rank: int, world: int, port: int) -> bool:
    on, places = cube(rank, world, port), torch.arange(BATCH * SEQ).view(BATCH, SEQ)
    found = cube_places(part(places, [(on.depth, 0), (on.row, 0)]), on)
    return torch.equal(found, part(places, [(on.depth, 0), (on.column, 0)]))


def _rounded(on: Cube) -> float:
    table = torch.zeros(1, 1, dtype=torch.bfloat16, requires_grad=True)
    tokens = torch.zeros(1, 1000, dtype=torch.int64)
    cube_lookup(tokens, table, 4, on).backward(torch.ones(1, 1000, 1, dtype=torch.bfloat16))
    assert table.grad is not None
    return table.grad.item()


def test_tables_look_up_as_whole_ones_do() -> None:
    found = spawn(_tables, 8)
    for lookups, positions, _ in found:
        assert max(positions) < 1e-13
        for vocab, (worst, forward, backward) in zip(VOCABULARIES, lookups, strict=True):
            assert worst < 1e-12
            if vocab == 16:
                assert backward == (vocab * DIM + BATCH * SEQ * DIM) / 8
                assert forward == backward + BATCH * SEQ / 4
    # 4,000 tokens have the first number, half of them at each depth. Its row is on the ranks of column 0 and depth 0.
    assert [rounded for _, _, rounded in found] == [4000.0, 0.0, 4000.0, 0.0, 0.0, 0.0, 0.0, 0.0]


def test_places_follow_the_hidden_states_of_their_tokens() -> None:
    assert all(spawn(_places, 8))
