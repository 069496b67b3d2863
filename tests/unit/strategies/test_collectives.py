"""The two ways to sum rows over ranks give the same, on real ranks; and a rank alone sends nothing."""

from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from harness.ranks import group, spawn

from shardyard.strategies.collectives import all_gather, exchange_and_sum, receive, reduce_scatter, send


def summed(rank: int, world: int, port: int) -> Any:
    group(rank, world, port)
    assert dist.group.WORLD is not None
    found = []
    for dtype in (torch.float64, torch.bfloat16):
        rows = torch.randn(world, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(rank)).to(dtype)
        ways = [way(rows.clone(), dist.group.WORLD)() for way in (reduce_scatter, exchange_and_sum)]
        mine = rows.clone()
        into = exchange_and_sum(mine, dist.group.WORLD, mine[rank])()
        found.append([way.double().tolist() for way in (*ways, into)])
    return found


def test_both_ways_sum_alike() -> None:
    everyone = [
        torch.randn(2, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(rank)) for rank in range(2)
    ]
    for rank, (exact, half) in enumerate(spawn(summed, 2)):
        expected = (everyone[0] + everyone[1])[rank].tolist()
        assert exact == [expected] * 3
        rounded = sum(rows.bfloat16().double() for rows in everyone)[rank]
        native, exchanged, into = half
        assert exchanged == rounded.float().tolist()  # summed in fp32
        assert native == into == rounded.bfloat16().double().tolist()  # in the dtype that is sent


@pytest.mark.parametrize("way", [reduce_scatter, exchange_and_sum])
def test_one_rank_has_the_sum(way: Any) -> None:
    rows = torch.arange(3.0).view(1, 3)
    assert way(rows, None)().tolist() == [0, 1, 2]
    assert way(rows, None, rows[0])().data_ptr() == rows.data_ptr()
    into = torch.empty(1, 3)
    assert all_gather(rows[0], None, into)() is into and into.tolist() == [[0, 1, 2]]
    assert all_gather(rows[0], None)().tolist() == [[0, 1, 2]]


def exchanged(rank: int, world: int, port: int) -> Any:
    group(rank, world, port)
    world_group = dist.group.WORLD
    assert world_group is not None
    numbers = [torch.full((3,), 10.0 * rank + turn) for turn in range(2)]
    sent = [send(one, 1 - rank, world_group) for one in numbers]
    coming = [receive(torch.empty(3), 1 - rank, world_group) for _ in numbers]
    arrived = [wait().tolist() for wait in coming]
    return arrived, [wait()[0].item() for wait in sent]


def test_messages_between_two_ranks_keep_their_order() -> None:
    first, second = spawn(exchanged, 2)
    assert first == ([[10.0] * 3, [11.0] * 3], [0.0, 1.0])
    assert second == ([[0.0] * 3, [1.0] * 3], [10.0, 11.0])


def test_a_message_may_take_longer_than_the_groups_collectives(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = []

    class Message:
        def wait(self, *limit: timedelta) -> None:
            limits.append(limit)

    monkeypatch.setattr(dist, "irecv", lambda *_, **__: Message())
    somewhere: Any = None
    for more in ({}, {"limit": timedelta(days=1)}):
        receive(torch.empty(1), 0, somewhere, **more)()
    assert limits == [(), (timedelta(days=1),)]
