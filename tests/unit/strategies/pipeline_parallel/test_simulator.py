"""The simulated bubble is the papers' formula, exactly, and no rank does two things at a time."""

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardyard.strategies.layout import Layout
from shardyard.strategies.pipeline_parallel.schedule import planned_order
from shardyard.strategies.pipeline_parallel.schedule_order import COMPUTES, Action
from shardyard.strategies.pipeline_parallel.simulator import Durations, Stuck, Timeline, evenly, simulate, steady_bubble


def _even(layout: Layout, microbatches: int) -> Timeline:
    """Every action takes 1, a whole backward pass 2: the times are integers, and exact."""
    ones = [1.0] * layout.stages
    return simulate(planned_order(layout, microbatches), Durations(ones, ones, ones))


def _bubble(timeline: Timeline) -> Fraction:
    """The same as `timeline.bubble`, without rounding."""
    whole = Fraction(timeline.makespan) * len(timeline.ranks)
    found = 1 - sum(Fraction(timeline.busy(rank)) for rank in range(len(timeline.ranks))) / whole
    assert timeline.bubble == pytest.approx(float(found), abs=1e-12)
    return found


@settings(deadline=None)
@given(schedule=st.sampled_from(["gpipe", "1f1b"]), p=st.integers(2, 8), extra=st.integers(0, 16))
def test_bubble_of_gpipe_and_1f1b(schedule: str, p: int, extra: int) -> None:
    m = p + extra
    timeline = _even(Layout.model_validate({"pipeline": p, "schedule": schedule}), m)
    assert _bubble(timeline) == Fraction(p - 1, m + p - 1)


@settings(deadline=None)
@given(p=st.integers(2, 6), rounds=st.integers(1, 4), v=st.integers(2, 4))
def test_interleaving_divides_the_bubble_by_the_stages_per_rank(p: int, rounds: int, v: int) -> None:
    m = p * rounds
    bubble = _bubble(_even(Layout(pipeline=p, schedule="interleaved", virtual=v), m))
    assert bubble / (1 - bubble) == Fraction(p - 1, m * v)  # of the ideal time


@settings(deadline=None)
@given(
    p=st.integers(2, 6),
    rounds=st.integers(2, 4),
    schedule=st.sampled_from(["interleaved-zb", "zb-h1", "zb-h2", "zbv", "dualpipev"]),
)
def test_zero_bubble_schedules_are_below_1f1b(p: int, rounds: int, schedule: str) -> None:
    m = p * rounds
    assert (
        _even(Layout.model_validate({"pipeline": p, "schedule": schedule}), m).bubble
        < _even(Layout(pipeline=p), m).bubble
    )


@pytest.mark.parametrize("p", [2, 3, 6])
def test_backward_passes_of_a_minibatch_are_one_after_the_other(p: int) -> None:
    """A forward pass of 1 and p backward passes of 2, in which each rank works for 3."""
    found = _even(Layout(pipeline=p, schedule="pipedream"), 1)
    assert found.bubble == pytest.approx(1 - 3 / (1 + 2 * p))


@pytest.mark.parametrize("p", [2, 3, 6])
def test_ranks_that_end_steps_apart_have_no_bubble(p: int) -> None:
    """The backward pass of one minibatch is hidden behind those of others; the slowest stage never waits."""
    assert steady_bubble(evenly([3.0] * p)) == pytest.approx(0)
    assert steady_bubble(evenly([3.0] * (p - 1) + [6.0])) == pytest.approx((p - 1) / (2 * p))
    assert steady_bubble(evenly([6.0] + [3.0] * (p - 1))) == pytest.approx((p - 1) / (2 * p))


@pytest.mark.parametrize(("p", "m"), [(2, 1), (4, 1), (4, 8), (3, 5)])
def test_ends_that_wait_for_each_other_leave_the_backward_passes_of_all_ranks_but_one_empty(p: int, m: int) -> None:
    """A step of m passes of 1 and 2 then takes p − 1 backward passes more."""
    found = steady_bubble(Durations([1.0] * p, [2.0] * p, [0.0] * p), meeting_every=m)
    assert found == pytest.approx(1 - 3 * m / (3 * m + 2 * (p - 1)))


@settings(deadline=None)
@given(p=st.integers(2, 6), more=st.integers(0, 5))
def test_without_a_flush_there_is_no_bubble(p: int, more: int) -> None:
    m = 2 * (p - 1) + more
    assert _even(Layout(pipeline=p, schedule="2bw"), m).bubble == 0
    uneven = simulate(planned_order(Layout(pipeline=p, schedule="2bw"), m), evenly([3] * (p - 1) + [6]))
    assert uneven.makespan == pytest.approx(6 * m)  # the slowest stage never waits
    assert uneven.bubble == pytest.approx((p - 1) / (2 * p))


@settings(deadline=None)
@given(
    schedule=st.sampled_from(["gpipe", "1f1b", "interleaved", "interleaved-zb", "zb-h1", "zb-h2", "zbv", "dualpipev"]),
    p=st.integers(2, 4),
    times=st.lists(st.floats(0.1, 9), min_size=8, max_size=8),
    communication=st.floats(0, 3),
)
def test_what_is_needed_is_there(schedule: str, p: int, times: list[float], communication: float) -> None:
    layout = Layout.model_validate({"pipeline": p, "schedule": schedule})
    order = planned_order(layout, 2 * p)
    durations = Durations(times, times[::-1], times, communication)
    timeline = simulate(order, durations)
    ends = {t.action: t.end for rank in timeline.ranks for t in rank}
    for rank, timed in enumerate(timeline.ranks):
        assert [t.action for t in timed] == list(order[rank])
        computing = [t for t in timed if t.action.kind in COMPUTES]
        assert all(a.end <= b.start for a, b in pairwise(computing))
        assert all(t.end - t.start == pytest.approx(durations.of(t.action)) for t in timed)
        for t in timed:
            forward = Action("RECV_F", t.action.stage, t.action.microbatch)
            if t.action.kind == "F" and forward in ends:
                assert ends[forward] <= t.start
            backward = Action("RECV_B", t.action.stage, t.action.microbatch)
            if t.action.kind in ("B", "I") and backward in ends:
                assert ends[backward] <= t.start
    assert timeline.makespan >= max(map(timeline.busy, range(p)))
    assert 0 <= timeline.bubble < 1


def test_the_slowest_stage_and_slow_messages_make_a_bubble() -> None:
    order = planned_order(Layout(pipeline=2), 8)
    even, uneven = simulate(order, evenly([3, 3])), simulate(order, evenly([3, 6]))
    assert uneven.bubble > even.bubble
    slow = simulate(order, Durations([1, 1], [1, 1], [1, 1], communication=1))
    assert slow.makespan > even.makespan and slow.bubble > even.bubble


def test_an_order_that_waits_for_itself_is_stuck() -> None:
    order = ((Action("B", 0, 0), Action("F", 0, 0)), (Action("F", 1, 0), Action("B", 1, 0)))
    with pytest.raises(Stuck, match="0B0, 1F0"):
        simulate(order, evenly([1, 1]))
