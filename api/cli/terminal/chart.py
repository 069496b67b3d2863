"""A curve with its band of extremes, drawn with braille dots: two across and four up in each character."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite

#: The dot of a character by its row from the top and its column.
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_BLANK = 0x2800

Scale = Callable[[float], int]


@dataclass(frozen=True)
class Point:
    """A point: its horizontal position, its value, and the extremes there."""

    at: float
    value: float
    low: float
    high: float


def points(
    places: Sequence[float],
    values: Sequence[float | None],
    low: Sequence[float | None] | None,
    high: Sequence[float | None] | None,
) -> list[Point]:
    """The known points. A value without extremes is its own extremes."""
    found = []
    for at, *numbers in zip(places, values, low or values, high or values, strict=True):
        known = [number for number in numbers if number is not None and isfinite(number)]
        if len(known) == len(numbers):
            found.append(Point(at, *known))
    return found


def chart(curve: Sequence[Point], wide: int, tall: int) -> list[str]:
    """Lines of `wide` characters from the highest value to the lowest; a constant curve is in the middle."""
    across, up = 2 * wide - 1, 4 * tall - 1
    first, last = curve[0].at, curve[-1].at
    bottom, top = min(one.low for one in curve), max(one.high for one in curve)

    def column(at: float) -> int:
        return round((at - first) / ((last - first) or 1) * across)

    def row(value: float) -> int:
        return round((top - value) / (top - bottom) * up) if top > bottom else up // 2

    cells = [[_BLANK] * wide for _ in range(tall)]
    for x, begin, end in _strokes(curve, column, row):
        for y in range(min(begin, end), max(begin, end) + 1):
            cells[y // 4][x // 2] |= _DOTS[y % 4][x % 2]
    return ["".join(map(chr, line)) for line in cells]


def _strokes(curve: Sequence[Point], column: Scale, row: Scale) -> Iterator[tuple[int, int, int]]:
    """Upright strokes: each point's band, and the way from each value to the next."""
    for one in curve:
        yield column(one.at), row(one.low), row(one.high)
    for one, other in pairwise(curve):
        begin, end, before = column(one.at), column(other.at), row(one.value)
        for x in range(begin + 1, end + 1):
            here = row(one.value + (other.value - one.value) * (x - begin) / (end - begin))
            yield x, before, here
            before = here
        yield end, before, row(other.value)
