"""Small charts made of characters: a line of numbers, and a bar. Unknown numbers leave a gap."""

from collections.abc import Sequence
from itertools import pairwise
from math import isfinite

_LEVELS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float | None], width: int) -> str:
    """The values in at most `width` characters, lowest `▁`, highest `█`; more values are averaged by position."""
    shown = _averaged([value if value is not None and isfinite(value) else None for value in values], width)
    known = [value for value in shown if value is not None]
    if not known:
        return ""
    low, span = min(known), (max(known) - min(known)) or 1.0
    top = len(_LEVELS) - 1
    return "".join(" " if value is None else _LEVELS[round((value - low) / span * top)] for value in shown)


def _averaged(values: Sequence[float | None], width: int) -> list[float | None]:
    if len(values) <= width:
        return list(values)
    edges = [len(values) * place // width for place in range(width + 1)]
    return [_mean(values[begin:end]) for begin, end in pairwise(edges)]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def bar(parts: Sequence[tuple[float, str]], whole: float, width: int) -> str:
    """Lengths side by side, each drawn with its own character, as shares of `whole`, which is `width` characters."""
    drawn, place, sofar = "", 0, 0.0
    for length, character in parts:
        sofar += length
        end = min(width, round(sofar / whole * width)) if whole > 0 else 0
        drawn += character * (end - place)
        place = max(place, end)
    return drawn.ljust(width)


class Course:
    """A series that never grows beyond `most` numbers: when it is full, every second one is dropped."""

    def __init__(self, most: int = 512) -> None:
        self.values: list[float | None] = []
        self._most = most
        self._stride, self._skipped = 1, 0

    def add(self, value: float | None) -> None:
        self._skipped += 1
        if self._skipped < self._stride:
            return
        self._skipped = 0
        self.values.append(value)
        if len(self.values) >= self._most:
            self.values = self.values[1::2]
            self._stride *= 2
