"""Every value that MLflow clients logged, so that they can read them back. When there are too many, the longest history is thinned.

A value takes 24 bytes here. A thinned history has every second value, then every fourth, and always the newest one.
"""

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from ..messages.metric_block import MOST_NAMES

#: Maximum number of values of all runs of a rank.
MOST_VALUES: Final = 1_000_000


class Value(NamedTuple):
    """One value of a metric."""

    step: int
    time_ms: int
    """When it was logged, as the client says: milliseconds since 1970."""
    value: float


class MetricHistory:
    """The values of a metric of one run, in the order in which they were logged. It has at least one."""

    def __init__(self, first: Value) -> None:
        self.newest = first
        """That of the highest step, and of several the last one."""
        self.every = 1
        """How many logged values there are for each one that is kept."""
        self._steps, self._times, self._values = array("q"), array("q"), array("d")
        self._logged = 0
        self._last = first
        self._ordered = True  # by time
        self.add(first)

    def __len__(self) -> int:
        """How many values are kept."""
        return len(self._steps)

    def add(self, value: Value) -> None:
        """A value that was logged."""
        self._ordered = self._ordered and value.time_ms >= self._last.time_ms
        self._last = value
        if value.step >= self.newest.step:
            self.newest = value
        if self._logged % self.every == 0:
            self._steps.append(value.step)
            self._times.append(value.time_ms)
            self._values.append(value.value)
        self._logged += 1

    def thin(self) -> None:
        """Drop every second value."""
        self.every *= 2
        for kept in (self._steps, self._times):
            del kept[1::2]
        del self._values[1::2]

    def page(self, first: int, size: int) -> tuple[list[Value], int | None]:
        """Values from the `first` that was logged on, and where the next page begins; None after the last one.

        Pages that are read while values are added or thinned have each value once at most.
        """
        start, kept = -(-first // self.every), len(self)
        end = start + size
        found = [
            Value(*one)
            for one in zip(self._steps[start:end], self._times[start:end], self._values[start:end], strict=True)
        ]
        has_last = (self._logged - 1) % self.every == 0
        if not has_last and start <= kept < end:
            found.append(self._last)
        return found, end * self.every if end < kept + (not has_last) else None

    def has(self, value: Value) -> bool:
        """Whether this very value is kept."""
        start, end = 0, len(self)
        if self._ordered:
            start, end = bisect_left(self._times, value.time_ms), bisect_right(self._times, value.time_ms)
        while start < end:
            try:
                at = self._steps.index(value.step, start, end)
            except ValueError:
                return False
            if self._times[at] == value.time_ms and _equal(self._values[at], value.value):
                return True
            start = at + 1
        return False


def _equal(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


class MetricHistories:
    """The histories of all runs, in bounded memory."""

    def __init__(self, on_thinned: Callable[[str, str], None]) -> None:
        """`on_thinned`: called with run and metric when a history is thinned for the first time."""
        self._on_thinned = on_thinned
        self._kept: dict[str, dict[str, MetricHistory]] = {}
        self._names = self._values = 0

    def of(self, run: str) -> Mapping[str, MetricHistory]:
        """The histories of a run, by metric. Beyond 1,000 metrics of all runs further ones have none."""
        return self._kept.get(run, {})

    def add(self, run: str, key: str, value: Value) -> None:
        """A value that was logged."""
        known = self.of(run).get(key)
        before = 0 if known is None else len(known)
        if known is not None:
            known.add(value)
        elif self._names < MOST_NAMES:
            known = self._kept.setdefault(run, {})[key] = MetricHistory(value)
            self._names += 1
        if known is not None:
            self._values += len(known) - before
        if self._values > MOST_VALUES:
            self._thin()

    def forget(self, run: str) -> None:
        """Drop what a run has."""
        gone = self._kept.pop(run, {})
        self._names -= len(gone)
        self._values -= sum(map(len, gone.values()))

    def _thin(self) -> None:
        """The longest history, so that each is thinned as late as possible."""
        run, key, longest = max(
            ((run, key, one) for run, kept in self._kept.items() for key, one in kept.items()),
            key=lambda found: len(found[2]),
        )
        before = len(longest)
        longest.thin()
        self._values -= before - len(longest)
        if longest.every == 2:
            self._on_thinned(run, key)
