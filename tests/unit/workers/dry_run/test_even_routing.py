"""On fake tensors of the CPU, which need no fake device."""

import torch

from shardyard.workers.dry_run.even_routing import EvenRouting, value_of
from shardyard.workers.dry_run.fake_tensors import FakeTensorMode, unset_fake_temporarily


def rows(counts: torch.Tensor) -> list[int]:
    known = value_of(counts)
    assert known is not None
    with unset_fake_temporarily():
        found: list[int] = known.tolist()
        return found


def test_every_expert_gets_as_many_rows_and_none_is_dropped() -> None:
    with FakeTensorMode(), EvenRouting():
        counts = torch.bincount(torch.empty(10, dtype=torch.int64), minlength=5)
        assert rows(counts) == [3, 3, 2, 2, 0]
        assert rows(counts[:4].view(2, 2).sum(1)) == [6, 4]


def test_rows_that_are_repeated_by_counts_have_their_number() -> None:
    with FakeTensorMode(), EvenRouting():
        counts = torch.bincount(torch.empty(10, dtype=torch.int64), minlength=3)[:2]
        assert torch.arange(2).repeat_interleave(counts).shape == (10,)


def test_what_is_no_count_has_no_value() -> None:
    with FakeTensorMode(), EvenRouting():
        assert value_of(torch.empty(3).sum()) is None
