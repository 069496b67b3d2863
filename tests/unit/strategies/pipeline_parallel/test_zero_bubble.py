"""ZB-H1 and ZB-H2 are the paper's schedules: their bubbles and the micro-batches that they hold, exactly."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardyard.strategies.layout import Layout
from shardyard.strategies.pipeline_parallel.schedule import planned_order
from shardyard.strategies.pipeline_parallel.schedule_order import COMPUTES, peaks
from shardyard.strategies.pipeline_parallel.simulator import Durations, Timeline, simulate
from shardyard.strategies.pipeline_parallel.zero_bubble import HANDCRAFTED, passes, shift

Times = tuple[int, int, int]

#: Of a forward pass, of the gradient of the input and of that of the weights, which takes no longer than either.
TIMES = st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9)).filter(lambda t: t[2] <= min(t[:2]))


def _simulated(schedule: str, p: int, m: int, times: Times) -> Timeline:
    layout = Layout.model_validate({"pipeline": p, "schedule": schedule})
    forward, inputs, weights = ([float(time)] * p for time in times)
    return simulate(planned_order(layout, m), Durations(forward, inputs, weights))


def _bubble(schedule: str, p: int, m: int, times: Times) -> float:
    """In the unit of `times`: exact, because all are integers."""
    return _simulated(schedule, p, m, times).makespan - m * sum(times)


BUBBLES: dict[str, Callable[[int, int, int], int]] = {
    "1f1b": lambda f, i, w: f + i + w,
    "zb-h1": lambda f, i, w: f + i - w,
    "zb-h2": lambda f, i, w: max(f, f + i - 2 * w),
}


@settings(deadline=None)
@given(schedule=st.sampled_from(sorted(BUBBLES)), p=st.integers(2, 6), more=st.integers(0, 6), times=TIMES)
def test_the_bubble_is_the_papers(schedule: str, p: int, more: int, times: Times) -> None:
    m = 2 * p - 1 + more
    assert _bubble(schedule, p, m, times) == (p - 1) * BUBBLES[schedule](*times)


@settings(deadline=None)
@given(p=st.integers(2, 6), more=st.integers(0, 6), times=TIMES)
def test_h1_needs_only_one_micro_batch_per_rank(p: int, more: int, times: Times) -> None:
    assert _bubble("zb-h1", p, p + more, times) == (p - 1) * BUBBLES["zb-h1"](*times)


@settings(deadline=None)
@given(p=st.integers(2, 6), more=st.integers(0, 6))
def test_with_equal_times_no_rank_of_h2_pauses(p: int, more: int) -> None:
    """What remains of the bubble is the time before the last rank's start, and after the first one's end."""
    timeline = _simulated("zb-h2", p, 2 * p - 1 + more, (1, 1, 1))
    for rank, timed in enumerate(timeline.ranks):
        computing = [one for one in timed if one.action.kind in COMPUTES]
        assert all(before.end == after.start for before, after in pairwise(computing))
        assert (computing[0].start, timeline.makespan - computing[-1].end) == (rank, p - 1 - rank)


def test_h2_is_faster_than_h1_only_where_gradients_of_inputs_take_longer() -> None:
    assert _bubble("zb-h2", 4, 8, (1, 1, 1)) == _bubble("zb-h1", 4, 8, (1, 1, 1))
    assert _bubble("zb-h2", 4, 8, (2, 3, 2)) < _bubble("zb-h1", 4, 8, (2, 3, 2))


@given(p=st.integers(2, 8), more=st.integers(0, 9))
def test_every_rank_of_h1_holds_p_micro_batches_and_of_h2_2p_minus_1(p: int, more: int) -> None:
    m = 2 * p - 1 + more
    assert peaks(passes("zb-h1", p, m)) == [p] * p
    assert peaks(passes("zb-h2", p, m)) == [2 * p - 1] * p


def test_they_read_as_text() -> None:
    first, last = (" ".join(map(str, actions)) for actions in passes("zb-h1", 2, 3))
    assert first == "0F0 0F1 0B0 0F2 0B1 0B2"
    assert last == "1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2"
    first, last = (" ".join(map(str, actions)) for actions in passes("zb-h2", 2, 3))
    assert first == "0F0 0F1 0F2 0B0 0B1 0B2"
    assert last == "1F0 1I0 1F1 1I1 1F2 1I2 1W0 1W1 1W2"


@pytest.mark.parametrize("schedule", HANDCRAFTED)
def test_the_first_rank_is_far_ahead_and_the_last_one_far_behind(schedule: str) -> None:
    shifts: list[Any] = [shift(schedule, 4, rank) for rank in range(4)]
    expected = {"zb-h1": [(4, 0), (3, 1), (2, 2), (1, 3)], "zb-h2": [(7, 0), (5, 2), (3, 4), (1, 6)]}
    assert shifts == expected[schedule]
