"""The step's only collective adds up the targets that count, of the ranks whose loss counts."""

import torch

from shardyard.strategies.counted_targets import CountedTargets
from shardyard.strategies.documents import IGNORED

TARGETS = torch.tensor([[1, IGNORED, 2, 3]])


def test_ranks_add_their_own_and_all_get_the_share() -> None:
    ranks = [CountedTargets(True, here, 16) for here in (True, False, True)]
    for rank in ranks:
        rank.begin()
        rank.add(TARGETS)
        rank.add(TARGETS)
    summands = [float(number) for rank in ranks for number in rank.ballot()]
    assert summands == [6, 0, 6]
    assert [rank.share([sum(summands)]) for rank in ranks] == [12 / 16] * 3


def test_a_step_begins_at_zero_and_without_targets_has_a_finite_share() -> None:
    counted = CountedTargets(True, True, 4)
    counted.add(TARGETS)
    counted.begin()
    assert counted.ballot() == [0]
    assert counted.share([0.0]) == 1 / 4


def test_many_targets_are_counted_exactly() -> None:
    counted = CountedTargets(True, True, 1)
    counted._counted = torch.tensor((1 << 24) + 1)
    counted.add(torch.tensor([[1]]))
    assert counted.ballot() == [(1 << 24) + 2]


def test_joined_documents_count_nothing() -> None:
    counted = CountedTargets(False, True, 4)
    counted.add(TARGETS)
    assert counted.ballot() == [] and counted.share([5.0]) == 1.0
