"""How long messages take: within a node, and over the network cards of a node's ranks."""

from dataclasses import replace

import pytest

from shardyard.strategies.advisor.hardware import Hardware, Link

HARDWARE = Hardware(
    device="cuda",
    flops=1e14,
    memory=None,
    memory_bandwidth=1e12,
    host=1e10,
    ranks_per_node=8,
    intra=Link(400e9, 1e-5),
    inter=Link(50e9, 3e-5),
    block_s=0.0,
    hidden=0.0,
)


@pytest.mark.parametrize(
    ("ranks", "stride", "within"),
    [
        (1, 1, True),
        (8, 1, True),
        (2, 4, True),
        (4, 2, True),
        (16, 1, False),
        (2, 8, False),
        (4, 4, False),
        (3, 1, False),
    ],
)
def test_a_group_is_within_a_node_if_no_group_of_its_axis_crosses_one(ranks: int, stride: int, within: bool) -> None:
    first = [range(start, start + ranks * stride, stride) for start in range(0, 24, ranks * stride)]
    nodes = [{rank // 8 for rank in group} for group in first]
    assert HARDWARE.within(ranks, stride) is within is (max(map(len, nodes)) == 1)


def test_within_a_node_its_link_decides() -> None:
    assert HARDWARE.sending_s(8, 1, 4e9, 0) == pytest.approx(0.01)
    assert HARDWARE.sending_s(8, 1, 0, 100) == pytest.approx(100 * 3 * 1e-5)
    assert HARDWARE.sending_s(8, 1, 0, 100, "neighbours") == pytest.approx(100 * 1e-5)
    assert HARDWARE.sending_s(1, 1, 4e9, 100) == 0


@pytest.mark.parametrize(("stride", "cards"), [(1, 8), (2, 4), (4, 2), (8, 1), (16, 1)])
def test_between_nodes_every_rank_of_a_node_brings_its_card(stride: int, cards: int) -> None:
    """At most as fast as within the node: 8 cards have 400 GB/s, as its links do."""
    assert HARDWARE.sending_s(16, stride, 4e9, 0) == pytest.approx(4e9 / (cards * 50e9))
    faster = replace(HARDWARE, inter=Link(500e9, 3e-5))
    assert faster.sending_s(16, stride, 4e9, 0) == pytest.approx(4e9 / 400e9)


def test_a_group_that_lies_across_a_border_has_one_card() -> None:
    assert HARDWARE.sending_s(3, 1, 1e9, 0) == pytest.approx(1e9 / 50e9)


def test_between_nodes_a_message_to_a_neighbour_passes_one_card() -> None:
    """In a ring of 16 ranks on two nodes two hops are between nodes, and all others wait for them."""
    for stride in (1, 2, 8):
        assert HARDWARE.sending_s(16, stride, 4e9, 0, "neighbours") == pytest.approx(4e9 / 50e9)
    assert HARDWARE.sending_s(8, 1, 4e9, 0, "neighbours") == pytest.approx(4e9 / 400e9)


@pytest.mark.parametrize(("ranks", "stride", "away"), [(16, 1, 8 / 15), (64, 1, 56 / 63), (8, 2, 4 / 7), (4, 8, 1.0)])
def test_in_an_all_to_all_each_rank_sends_to_other_nodes_by_its_own_card(ranks: int, stride: int, away: float) -> None:
    assert HARDWARE.sending_s(ranks, stride, 4e9, 0, "all_to_all") == pytest.approx(away * 4e9 / 50e9)
    faster = replace(HARDWARE, inter=Link(500e9, 3e-5))
    assert faster.sending_s(ranks, stride, 4e9, 0, "all_to_all") == pytest.approx(4e9 / 400e9)
