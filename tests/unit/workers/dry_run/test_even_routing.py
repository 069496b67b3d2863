"""On fake tensors of the CPU, which need no fake device."""

import pytest
import torch
from torch._subclasses.fake_tensor import DynamicOutputShapeException

from shardyard.workers.dry_run.even_routing import EvenRouting, value_of
from shardyard.workers.dry_run.fake_tensors import FakeTensorMode, unset_fake_temporarily
from shardyard.workers.models.moe import rows_each


def rows(counts: torch.Tensor) -> list[int]:
    known = value_of(counts)
    assert known is not None
    with unset_fake_temporarily():
        found: list[int] = known.tolist()
        return found


def test_every_expert_gets_as_many_rows_and_none_is_dropped() -> None:
    with FakeTensorMode(), EvenRouting():
        counts = rows_each(torch.empty(10, dtype=torch.int64), 4)
        assert rows(counts) == [3, 3, 2, 2]
        assert rows(counts.view(2, 2).sum(1)) == [6, 4]


@pytest.mark.parametrize("length", [0, 1])
def test_a_sum_into_fewer_than_two_numbers_counts_no_experts(length: int) -> None:
    with FakeTensorMode(), EvenRouting():
        counts = torch.zeros(length, dtype=torch.int64)
        counts.scatter_add_(0, torch.zeros(4, dtype=torch.int64), torch.ones(4, dtype=torch.int64))
        assert value_of(counts) is None


def test_counts_whose_host_would_wait_fail() -> None:
    choices = torch.zeros(10, dtype=torch.int64)
    with FakeTensorMode(allow_non_fake_inputs=True), EvenRouting():
        counts = rows_each(choices, 2)
        for count in (lambda: torch.bincount(choices, minlength=3), lambda: torch.arange(2).repeat_interleave(counts)):
            with pytest.raises(DynamicOutputShapeException):
                count()


def test_what_is_no_count_has_no_value() -> None:
    with FakeTensorMode(), EvenRouting():
        assert value_of(torch.empty(3).sum()) is None
