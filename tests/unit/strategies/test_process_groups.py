"""Real gloo groups: formed by their members alone, in one call each."""

from typing import Any

from harness.ranks import group, spawn


def sums(rank: int, world: int, port: int) -> Any:
    import torch
    import torch.distributed as dist

    from shardyard.strategies.process_groups import group_named, group_of_mine, group_of_one

    group(rank, world, port)
    rows = group_of_mine([[0, 1], [2, 3]], "rows")
    columns = group_of_mine([[0, 2], [1, 3]], "columns")
    found = []
    for formed in (rows, columns, group_of_one()):
        number = torch.tensor([10.0**rank])
        dist.all_reduce(number, group=formed)
        found.append((number.item(), formed.size(), group_named(formed.group_name) is formed))
    return found


def test_each_rank_forms_its_own_groups() -> None:
    assert spawn(sums, 4) == [
        [(11.0, 2, True), (101.0, 2, True), (1.0, 1, True)],
        [(11.0, 2, True), (1010.0, 2, True), (10.0, 1, True)],
        [(1100.0, 2, True), (101.0, 2, True), (100.0, 1, True)],
        [(1100.0, 2, True), (1010.0, 2, True), (1000.0, 1, True)],
    ]
