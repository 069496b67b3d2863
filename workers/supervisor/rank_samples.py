"""Rank metrics: every five seconds one sample of lists by rank. Each entry is a mean over the steps since the last sample.

Only complete steps of one generation count. None: the rank reported no value. Busy and wait times are not measured in every step: where
`timed_steps` is there, their means are of that many. Memory grows with the ranks, not with the steps.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Final

from ..messages.event_buffer import Ranks

SAMPLE_S: Final = 5.0
#: Larger gangs have no samples: one of them would not fit an answer of 300 kB.
MOST_RANKS: Final = 4096
#: Means over the steps, in seconds.
SECONDS: Final = ("step_s", "busy_s", "wait_s")
#: Memory in bytes: on CUDA what torch has allocated, elsewhere what is resident.
_MEMORY: Final = ("allocated", "resident")


class Mean:
    """Of the values so far; None without any."""

    def __init__(self) -> None:
        self._sum, self._count = 0.0, 0

    def add(self, value: float) -> None:
        self._sum, self._count = self._sum + value, self._count + 1

    @property
    def value(self) -> float | None:
        return self._sum / self._count if self._count else None


class Samples:
    """Collects complete steps, and returns a sample when one is due."""

    def __init__(self, world_size: int, every_s: float = SAMPLE_S, clock: Callable[[], float] = time.monotonic) -> None:
        self.world_size, self.every_s, self._clock = world_size, every_s, clock
        self._memory: dict[int, int] = {}  # by rank, the newest
        self._memory_of: str | None = None
        self._since: float | None = None
        self._begin()

    def _begin(self) -> None:
        self._means: dict[tuple[str, int], Mean] = defaultdict(Mean)
        self._steps, self._timed, self._step = 0, 0, 0

    def add(self, ranks: Ranks) -> dict[str, Any] | None:
        """Add a complete step; returns the sample that is due with it."""
        if self.world_size > MOST_RANKS:
            return None
        for rank, record in ranks.items():
            self._take(rank, record)
        self._steps, self._step = self._steps + 1, int(next(iter(ranks.values()))["step"])
        self._timed += any(record.get("busy_s") is not None for record in ranks.values())
        now = self._clock()
        self._since = now if self._since is None else self._since
        return self._sample(now) if now - self._since >= self.every_s else None

    def flush(self) -> dict[str, Any] | None:
        """At a generation's end: the sample of what is left; None when nothing is."""
        sample = self._sample(None) if self._steps else None
        self._memory.clear()  # the next generation has other processes
        return sample

    def _take(self, rank: int, record: dict[str, Any]) -> None:
        for name in SECONDS:
            if (seconds := record.get(name)) is not None:
                self._means[name, rank].add(float(seconds))
        for kind in _MEMORY:
            if (size := record.get(kind)) is not None:
                self._memory[rank], self._memory_of = int(size), kind
                return

    def _sample(self, since: float | None) -> dict[str, Any]:
        ranks = range(self.world_size)
        seconds = {name: [_short(self._means[name, rank].value) for rank in ranks] for name in SECONDS}
        memory = {"memory": [self._memory.get(rank) for rank in ranks], "memory_of": self._memory_of}
        some = {"timed_steps": self._timed} if 0 < self._timed < self._steps else {}
        sample = {"step": self._step, "steps": self._steps, **some, **seconds, **memory}
        self._since = since
        self._begin()
        return sample


def places(nodes: Sequence[str | None]) -> dict[str, Any]:
    """Where each rank was, each node named once: `nodes`, and by rank the index into them (None: not known)."""
    names = sorted({node for node in nodes if node is not None})
    index = {node: at for at, node in enumerate(names)}
    return {"nodes": names, "node_of": [None if node is None else index[node] for node in nodes]}


def _short(seconds: float | None) -> float | None:
    """Round to four digits, because the numbers of hundreds of ranks are sent and stored together."""
    return None if seconds is None else float(f"{seconds:.4g}")
