"""Curves made of dots."""

import math

import pytest

from shardyard.api.cli.terminal.chart import chart, points


def drawn(values: list[float | None], wide: int, tall: int, **extremes: list[float | None]) -> list[str]:
    places = [float(at) for at in range(len(values))]
    return chart(points(places, values, extremes.get("low"), extremes.get("high")), wide, tall)


@pytest.mark.parametrize(("values", "line"), [([3.0] * 4, "⠒⠒"), ([3.0], "⠂⠀"), ([3.0, 0.0], "⠙⢦"), ([0.0, 3.0], "⣠⠞")])
def test_a_line(values: list[float | None], line: str) -> None:
    assert drawn(values, 2, 1) == [line]


def test_a_line_rises_to_the_right_and_has_no_gap() -> None:
    shown = drawn([0.0, 1.0], 8, 4)
    assert [len(line) for line in shown] == [8] * 4
    assert shown[0][-1] != "⠀" and shown[0][0] == "⠀" and shown[3][0] != "⠀" and shown[3][-1] == "⠀"
    columns = [any(line[x] != "⠀" for line in shown) for x in range(8)]
    assert all(columns)


def test_a_spike_in_a_band_reaches_the_top_though_the_mean_does_not() -> None:
    low, high = [1.0] * 9, [1.0, 1.0, 1.0, 1.0, 9.0, 1.0, 1.0, 1.0, 1.0]
    shown = drawn([1.0] * 9, 8, 2, low=[*low], high=[*high])
    assert sum(character != "⠀" for character in shown[0]) == 1
    assert all(character != "⠀" for character in shown[1])


def test_what_is_not_known_is_no_point() -> None:
    found = points([1.0, 2.0, 3.0, 4.0], [1.0, None, math.nan, 4.0], None, None)
    assert [(one.at, one.value, one.low, one.high) for one in found] == [(1.0, 1.0, 1.0, 1.0), (4.0, 4.0, 4.0, 4.0)]
