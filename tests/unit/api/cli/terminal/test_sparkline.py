"""Pictures made of characters."""

import math
from itertools import pairwise

import pytest

from shardyard.api.cli.terminal.sparkline import Course, bar, sparkline


@pytest.mark.parametrize(
    ("values", "width", "shown"),
    [
        ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], 8, "▁▂▃▄▅▆▇█"),
        ([8.0, 8.0, 1.0, 1.0], 2, "█▁"),
        ([1.0, None, 8.0], 10, "▁ █"),
        ([1.0, math.nan, math.inf, 8.0], 10, "▁  █"),
        ([2.0, 2.0], 10, "▁▁"),
        ([], 10, ""),
        ([None], 10, ""),
    ],
)
def test_sparkline(values: list[float | None], width: int, shown: str) -> None:
    assert sparkline(values, width) == shown


def test_a_long_series_fits() -> None:
    assert len(sparkline([float(n) for n in range(1001)], 60)) == 60


@pytest.mark.parametrize(
    ("parts", "whole", "shown"),
    [([(1.0, "█"), (3.0, "░")], 4.0, "██░░░░░░"), ([(1.0, "█")], 2.0, "████    "), ([(0.0, "█")], 0.0, "        ")],
)
def test_bar(parts: list[tuple[float, str]], whole: float, shown: str) -> None:
    assert bar(parts, whole, 8) == shown


def test_a_course_keeps_its_shape_and_never_grows() -> None:
    course = Course(most=64)
    for number in range(100_000):
        course.add(float(number))
    assert 31 <= len(course.values) < 64
    known = [value for value in course.values if value is not None]
    assert known == sorted(known)
    assert known[-1] > 95_000
    gaps = {b - a for a, b in pairwise(known)}
    assert len(gaps) == 1
