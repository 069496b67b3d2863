"""A logged metric in bounded memory: equal to a dictionary of all its values, whatever comes in whatever order."""

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shardyard.service.store.packing import metric_curve
from shardyard.service.store.packing.metric_curve import BUCKETS, Bucket, MetricCurve, coarser, packed, unpacked

FINITE = st.floats(-1e6, 1e6)


def naive(points: list[tuple[int, int, float]]) -> dict[int, list[float]]:
    """Step → the values of the newest run that had reached it when it was logged."""
    values: dict[int, list[float]] = {}
    run = 0
    for this, step, value in points:
        if this < run:
            continue
        if this > run:
            values = {known: kept for known, kept in values.items() if known < step}
            run = this
        values.setdefault(step, []).append(value)
    return values


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 60), FINITE), max_size=80))
def test_every_step_is_kept_while_there_is_room(points: list[tuple[int, int, float]]) -> None:
    curve = MetricCurve()
    for point in points:
        curve.take(*point)
    wanted = naive(points)
    kept = [value for values in wanted.values() for value in values]
    assert (curve.lowest, curve.highest) == (min(kept, default=None), max(kept, default=None))
    assert curve.width == 1 and curve.buckets.keys() == wanted.keys()
    for step, values in wanted.items():
        one = curve.buckets[step]
        assert (one.count, one.low, one.high) == (len(values), min(values), max(values))
        assert math.isclose(one.total, math.fsum(values), rel_tol=1e-12, abs_tol=1e-6)


@given(st.lists(st.tuples(st.integers(0, 2**53 - 1), FINITE), min_size=1, max_size=60))
def test_a_curve_of_any_length_is_bounded_and_loses_no_extreme(points: list[tuple[int, float]]) -> None:
    curve = MetricCurve()
    for step, value in points:
        curve.take(1, step, value)
    assert max(curve.buckets) < BUCKETS and curve.width & (curve.width - 1) == 0
    for place, one in curve.buckets.items():
        mine = [value for step, value in points if step // curve.width == place]
        assert (one.count, one.low, one.high) == (len(mine), min(mine), max(mine))
    values = [value for _, value in points]
    assert (curve.lowest, curve.highest) == (min(values), max(values))
    newest = max(step for step, _ in points)
    last = [value for step, value in points if step == newest]
    assert (curve.last_step, curve.last_count) == (newest, len(last)) and curve.last is not None
    assert math.isclose(curve.last, math.fsum(last) / len(last), rel_tol=1e-12, abs_tol=1e-6)


def test_the_newest_value_is_the_mean_of_the_ranks_in_any_order() -> None:
    """Of the finite ones: what a rank could not compute takes no other's place."""
    for values in ([0.9, None, 0.1], [None, 0.1, 0.9], [0.1, 0.9, None]):
        curve = MetricCurve()
        for value in (2.0, *values):
            curve.take(1, 5 if value == 2.0 else 6, value)
        assert (curve.last_step, curve.last) == (6, 0.5)
    curve.take(1, 7, None)
    assert (curve.last_step, curve.last) == (7, None)
    curve.take(1, 6, 3.0)
    assert (curve.last_step, curve.last) == (7, None), "a late one"


def test_a_later_run_replaces_from_its_first_step_on() -> None:
    """Also in wide buckets, where only the one in which it begins keeps both."""
    curve = MetricCurve()
    for step in range(4 * BUCKETS):
        curve.take(1, step, 1.0)
    assert curve.width == 4
    curve.take(2, 10, 5.0)
    assert sorted(curve.buckets) == [0, 1, 2]
    assert (curve.buckets[2].low, curve.buckets[2].high, curve.buckets[2].count) == (1.0, 5.0, 5)
    assert (curve.last_step, curve.last) == (10, 5.0)
    curve.take(1, 11, 9.0)
    assert curve.buckets[2].count == 5


def test_a_value_that_is_not_finite_only_moves_the_end() -> None:
    curve = MetricCurve()
    curve.take(1, 0, 1.0)
    curve.take(1, 1, None)
    assert list(curve.buckets) == [0] and (curve.last_step, curve.last) == (1, None)
    assert (curve.lowest, curve.highest) == (1.0, 1.0)


@given(st.dictionaries(st.integers(0, BUCKETS - 1), st.tuples(st.integers(1, 9), FINITE, FINITE, FINITE), max_size=50))
def test_what_is_unpacked_is_what_was_packed(given_: dict[int, Any]) -> None:
    buckets = {place: Bucket(*values) for place, values in given_.items()}
    found: dict[int, Bucket] = {}
    for chunk, content in packed(buckets).items():
        assert len(content) <= metric_curve.CHUNK * 30
        found |= unpacked(chunk, content)
    assert found == buckets


def test_coarser_buckets_do_not_change_those_they_are_made_of() -> None:
    fine = {0: Bucket(1, 1.0, 1.0, 1.0), 1: Bucket(1, 3.0, 3.0, 3.0), 5: Bucket(1, 2.0, 2.0, 2.0)}
    assert coarser(fine, 2) == {0: Bucket(2, 1.0, 3.0, 4.0), 2: Bucket(1, 2.0, 2.0, 2.0)}
    assert fine[0].count == 1
