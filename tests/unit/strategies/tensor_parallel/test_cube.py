"""What a line gathers and sums is whole and exact, for chunks of any size; and what it sends is what the docstrings say."""

from typing import Any

import torch
from harness.cubes import counted, cube, elements, part
from harness.grids import numbers
from harness.ranks import spawn
from torch import nn

from shardyard.strategies.param_shard import manual_shards
from shardyard.strategies.tensor_parallel.cube import Cube, cut_over

ROWS = (4, 5, 1)


def _rounds(rank: int, world: int, port: int) -> list[dict[str, Any]]:
    on = cube(rank, world, port)
    return [_round(on, rows) for rows in ROWS]


def _round(on: Cube, rows: int) -> dict[str, Any]:
    whole, found = numbers(rows, 3), dict[str, Any]()
    for side in (on.depth, on.row, on.column):
        with counted(on) as traffic:
            gathered = side.gather(part(whole, [(side, 0)]), rows)()
        sent = elements(traffic)
        with counted(on) as traffic:
            summed = side.scatter(whole * (side.index + 1))()
        expected = part(whole * sum(range(1, side.size + 1)), [(side, 0)])
        worst = (summed - expected).abs().max().item() if expected.numel() else 0.0
        assert summed.shape == expected.shape
        found[side.axis] = (torch.equal(gathered, whole), worst, sent, elements(traffic))
    half = on.row.scatter(torch.full((2, 1), 1 / 3, dtype=torch.bfloat16))()
    assert half.dtype == torch.bfloat16
    layer = nn.Linear(3, 4, bias=False)
    cut_over(layer, "weight", [(on.column, 0), (on.row, 1), (on.depth, 0)])
    (placed,) = manual_shards(layer).values()
    found["cut"] = (tuple(layer.weight.shape), [cut.axis for cut in placed.cuts])
    return found


def test_lines_gather_and_sum_chunks_of_any_size() -> None:
    for rank, of_rank in enumerate(spawn(_rounds, 8)):
        for rows, found in zip(ROWS, of_rank, strict=True):
            shape, axes = found.pop("cut")
            assert shape == (1, 1 if rank // 2 % 2 else 2)
            assert axes == ["tensor_column", "tensor_row", "tensor_depth"]
            for is_whole, worst, gathered, summed in found.values():
                assert is_whole and worst < 1e-14
                assert gathered == summed == -(-rows // 2) * 3
