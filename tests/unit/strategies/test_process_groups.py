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


def passed_on(rank: int, world: int, port: int) -> Any:
    """What the rank before this one, in a ring of all, has sent over their pair's group, and the groups of the messages."""
    import torch
    import torch.distributed as dist

    from shardyard.strategies.process_groups import in_pairs, pairs_of_mine

    group(rank, world, port)
    pairs = pairs_of_mine([list(range(world))], ends_meet=True, description="pairs")
    arrived, to, source = torch.empty(1), (rank + 1) % world, (rank - 1) % world
    messages = [
        dist.P2POp(dist.isend, torch.tensor([10.0 * rank]), to, tag=to),
        dist.P2POp(dist.irecv, arrived, source, tag=rank),
    ]
    assert in_pairs(messages, {}) == messages
    rebuilt = in_pairs(messages, pairs)
    for work in [work for one in rebuilt for work in dist.batch_isend_irecv([one])]:
        work.wait()
    return arrived.item(), [dist.get_process_group_ranks(one.group) for one in rebuilt]


def test_messages_go_over_the_group_of_their_pair() -> None:
    assert spawn(passed_on, 3) == [(20.0, [[0, 1], [0, 2]]), (0.0, [[1, 2], [0, 1]]), (10.0, [[0, 2], [1, 2]])]


def limits(rank: int, world: int, port: int) -> list[float]:
    from datetime import timedelta

    import torch
    from harness.ranks import group

    from shardyard.strategies.layout import Layout
    from shardyard.strategies.mesh import make_mesh

    group(rank, world, port)
    mesh = make_mesh(Layout(data=2, tensor=2), torch.device("cpu"), timedelta(seconds=77))
    groups = [mesh.group(axis) for axis in ("replica", "tensor")]
    return [one._get_backend(torch.device("cpu")).options._timeout.total_seconds() for one in groups]


def test_groups_of_axes_have_the_limit_that_is_given() -> None:
    """Torch would give them its own half hour, whatever the world's group has."""
    assert spawn(limits, 4) == [[77.0, 77.0]] * 4
