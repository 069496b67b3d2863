"""What a line of a grid sends arrives: blocks of unequal size, sums in one place, sums everywhere."""

import torch
from harness.grids import grid
from harness.ranks import spawn

from shardyard.strategies.tensor_parallel.grid import one_ahead


def _send(rank: int, world: int, port: int) -> dict[str, list[float]]:
    on = grid(rank, world, port)
    mine = torch.full((rank + 1,), float(rank))
    below = range(on.row.index, world, on.size)  # the ranks of my column
    arrived = one_ahead(lambda place: on.column.broadcast(mine, place, (below[place] + 1,)), on.size)
    sums = [on.row.reduce(torch.full((1,), float(rank)), place)() for place in range(on.size)]
    return {
        "blocks": [number for block in arrived for number in block.tolist()],
        "own sum": sums[on.row.index].tolist(),
        "sum": on.column.sum(torch.full((1,), float(rank))).tolist(),
    }


def test_rows_and_columns_are_lines_of_their_own() -> None:
    first, second, third, fourth = spawn(_send, 4)
    assert first == {"blocks": [0, 2, 2, 2], "own sum": [1], "sum": [2]}
    assert second == {"blocks": [1, 1, 3, 3, 3, 3], "own sum": [1], "sum": [4]}
    assert third == {"blocks": [0, 2, 2, 2], "own sum": [5], "sum": [2]}
    assert fourth == {"blocks": [1, 1, 3, 3, 3, 3], "own sum": [5], "sum": [4]}


def _spans(rank: int, world: int, port: int) -> list[list[tuple[int, int]]]:
    on = grid(rank, world, port)
    return [on.row.spans(whole) for whole in (6, 5, 1, 0)]


def test_a_dimension_is_cut_as_torch_chunks_it() -> None:
    for found in spawn(_spans, 4):
        assert found == [[(0, 3), (3, 3)], [(0, 3), (3, 2)], [(0, 1), (1, 0)], [(0, 0), (0, 0)]]
