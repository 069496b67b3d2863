"""A sparkline is what the steps themselves would give, in bounded size."""

import random

import pytest

from shardyard.service.store.packing.loss_sparkline import BUCKETS, Sparkline, extended

NONE = Sparkline()


def sparkline_of(
    steps: list[tuple[int, float | None]], batch: int, sparkline: Sparkline = NONE, attempt: int = 1
) -> Sparkline:
    for at in range(0, len(steps), batch):
        sparkline = extended(sparkline, attempt, steps[at : at + batch])
    return sparkline


def naive(steps: list[tuple[int, float | None]], width: int) -> list[tuple[float | None, float | None]]:
    buckets: list[list[float]] = [[] for _ in range((steps[-1][0] - 1) // width + 1)]
    for step, loss in steps:
        if loss is not None:
            buckets[(step - 1) // width].append(loss)
    return [(min(bucket), max(bucket)) if bucket else (None, None) for bucket in buckets]


@pytest.mark.parametrize("count", [1, 2, BUCKETS - 1, BUCKETS, BUCKETS + 1, 1000, 4097])
@pytest.mark.parametrize("batch", [1, 7, 5000])
def test_it_holds_the_extremes_of_each_bucket(count: int, batch: int) -> None:
    rng = random.Random(count)
    steps = [(step, None if rng.random() < 0.1 else float(rng.randint(1, 9999))) for step in range(1, count + 1)]
    sparkline = sparkline_of(steps, batch)
    assert list(zip(sparkline.low, sparkline.high, strict=True)) == naive(steps, sparkline.width)
    assert len(sparkline.low) <= BUCKETS
    assert sparkline.width == 1 or len(sparkline.low) > BUCKETS // 2


def test_a_spike_among_many_steps_stays() -> None:
    steps: list[tuple[int, float | None]] = [(step, 2.0) for step in range(1, 50_001)]
    steps[31_234] = (31_235, 1e6)
    sparkline = sparkline_of(steps, 500)
    assert max(value for value in sparkline.high if value is not None) == 1e6
    assert [value for value in sparkline.low if value != 2.0] == []


def test_a_later_attempt_replaces_what_it_trains_again() -> None:
    first = sparkline_of([(step, 9.0) for step in range(1, 41)], 10)
    again = sparkline_of([(step, 1.0) for step in range(21, 31)], 10, first, attempt=2)
    assert list(again.high) == [9.0] * 20 + [1.0] * 10
    assert sparkline_of([(1, 5.0)], 1, again, attempt=3).high == [5.0]


def test_the_bucket_in_which_an_attempt_begins_keeps_both() -> None:
    first = sparkline_of([(step, 9.0) for step in range(1, 129)], 128)
    assert first.width == 2
    again = extended(first, 2, [(4, 1.0)])
    assert (again.low, again.high) == ([9.0, 1.0], [9.0, 9.0])


def test_steps_that_begin_late_leave_what_is_before_them_open() -> None:
    sparkline = extended(Sparkline(), 1, [(100, 3.0), (101, None)])
    assert sparkline.width == 2
    assert list(sparkline.low) == [None] * 49 + [3.0, None]
