"""One logged metric as a curve in bounded memory: at most 4,096 buckets of equal width, each with its extremes, sum and count.

Bucket i has the steps from i · width to (i + 1) · width - 1. If a step exceeds the last bucket, every two buckets become one. Values of
the same step, of several ranks, are counted in the same bucket. A later run replaces what earlier ones logged, from its first step on;
the bucket in which that step lies keeps both, unless the step is its first. Buckets are stored in chunks of 256.
"""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

BUCKETS: Final = 4096
CHUNK: Final = 256
#: A bucket's place in its chunk, number of values, lowest, highest and sum of them.
_BUCKET: Final = struct.Struct("<HIddd")


@dataclass
class Bucket:
    """The finite values of some steps."""

    count: int
    low: float
    high: float
    total: float

    def add(self, other: "Bucket") -> None:
        self.count += other.count
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.total += other.total


@dataclass
class MetricCurve:
    """The buckets that were loaded, and those that `take` has changed. `run`: the newest that logged.

    `lowest` and `highest` are of all buckets, also of those that were not loaded. `last` is the mean of the `last_count` finite values of
    the newest step, one of each rank that logs it; None if it has none.
    """

    width: int = 1
    run: int = 0
    last_step: int = -1
    last: float | None = None
    last_count: int = 0
    lowest: float | None = None
    highest: float | None = None
    buckets: dict[int, Bucket] = field(default_factory=dict)

    def needs_all(self, run: int, steps: Iterable[int]) -> bool:
        """Whether taking values of these steps changes more than the buckets that they are in."""
        return run > self.run or max(steps) // self.width >= BUCKETS

    def take(self, run: int, step: int, value: float | None) -> None:
        """Add a value; None is one that is not finite, of which only the step counts. Those of an older run are left out."""
        if run < self.run:
            return
        if run > self.run:
            self._begin(run, step)
        while step // self.width >= BUCKETS:
            self._halve()
        if step > self.last_step:
            self.last_step, self.last, self.last_count = step, None, 0
        if value is not None and step == self.last_step:
            self.last_count += 1
            known = value if self.last is None else self.last
            self.last = known + (value / self.last_count - known / self.last_count)
        if value is not None:
            self._add(step // self.width, Bucket(1, value, value, value))
            self.lowest = value if self.lowest is None else min(self.lowest, value)
            self.highest = value if self.highest is None else max(self.highest, value)

    def _begin(self, run: int, step: int) -> None:
        kept = -(-step // self.width)
        self.buckets = {place: bucket for place, bucket in self.buckets.items() if place < kept}
        self.run = run
        self.lowest = min((bucket.low for bucket in self.buckets.values()), default=None)
        self.highest = max((bucket.high for bucket in self.buckets.values()), default=None)
        if self.last_step >= step:
            self.last_step, self.last, self.last_count = -1, None, 0

    def _halve(self) -> None:
        buckets, self.buckets = self.buckets, {}
        self.width *= 2
        for place, bucket in buckets.items():
            self._add(place // 2, bucket)

    def _add(self, place: int, bucket: Bucket) -> None:
        known = self.buckets.get(place)
        if known is None:
            self.buckets[place] = bucket
        else:
            known.add(bucket)


def chunks_of(width: int, steps: Iterable[int]) -> set[int]:
    """The chunks in which these steps are."""
    return {step // width // CHUNK for step in steps}


def packed(buckets: Mapping[int, Bucket]) -> dict[int, bytes]:
    """The buckets by chunk."""
    found: dict[int, bytearray] = {}
    for place in sorted(buckets):
        one = buckets[place]
        part = _BUCKET.pack(place % CHUNK, min(one.count, 0xFFFFFFFF), one.low, one.high, one.total)
        found.setdefault(place // CHUNK, bytearray()).extend(part)
    return {chunk: bytes(content) for chunk, content in found.items()}


def unpacked(chunk: int, content: bytes) -> dict[int, Bucket]:
    """The buckets of a chunk."""
    return {chunk * CHUNK + place: Bucket(*values) for place, *values in _BUCKET.iter_unpack(content)}


def coarser(buckets: Mapping[int, Bucket], by: int) -> dict[int, Bucket]:
    """Buckets that are `by` times as wide."""
    made = MetricCurve()
    for place, one in buckets.items():
        made._add(place // by, Bucket(one.count, one.low, one.high, one.total))
    return made.buckets
