"""Rounds of messages between neighbours: each arrives under its micro-batch's number, and both ways cross without waiting."""

from harness.ranks import group, spawn

ROUNDS = 5


def test_messages_of_both_ways_arrive_in_rounds() -> None:
    down = [[], [10, 11, 12, 13, 14], [20, 21, 22, 23, 24]]
    up = [[10, 11, 12, 13, 14], [20, 21, 22, 23, 24], []]
    assert spawn(_exchange, 3) == [(down[rank], [-number for number in up[rank]]) for rank in range(3)]


def _exchange(rank: int, world: int, port: int) -> tuple[list[float], list[float]]:
    import torch

    from shardyard.strategies.layout import Layout
    from shardyard.strategies.mesh import make_mesh
    from shardyard.strategies.pipeline_parallel.neighbours import Neighbours

    mesh = make_mesh(Layout(pipeline=world, schedule="2bw"), group(rank, world, port))
    ways = [Neighbours(mesh, towards, ((2,), torch.float64)) for towards in (1, -1)]
    got: tuple[list[float], list[float]] = [], []
    for number in range(ROUNDS):
        for way, towards in zip(ways, (1, -1), strict=True):
            to, source = rank + towards, rank - towards
            value = torch.full((2,), towards * (10.0 * max(rank, to) + number), dtype=torch.float64)
            way.exchange(value if 0 <= to < world else None, number + 7 if 0 <= source < world else None)
        for way, found in zip(ways, got, strict=True):
            way.wait()
            way.renumber(7)
            found += [float(tensor[0]) for tensor in way.arrived.values()]
            way.forget()
    return got
