"""Values that a rank's trainer process gathers for its program, and passes on as blocks."""

import threading
from array import array
from collections.abc import Callable
from typing import Final

from ..messages.metric_block import MOST_NAMES, MetricBlock, packed

#: Called with what a program logs, on any thread. It waits while the rank's actor has no room.
OnMetrics = Callable[[list[MetricBlock]], None]

#: Maximum number of values that wait to be passed on.
MOST_WAITING: Final = 10_000


class MetricBatch:
    """The values since the last `flush`. Any thread may add some; one that adds the last for which there is room flushes."""

    def __init__(self, on_metrics: OnMetrics) -> None:
        self._on_metrics = on_metrics
        self._lock = threading.Lock()
        self._values: dict[str, tuple[array[int], array[float]]] = {}
        self._waiting = 0

    def add(self, name: str, step: int, value: float) -> None:
        with self._lock:
            steps, values = self._values.setdefault(name, (array("q"), array("d")))
            steps.append(step)
            values.append(value)
            self._waiting += 1
            full = self._waiting >= MOST_WAITING
        if full:
            self.flush()

    def flush(self) -> None:
        """Pass on what waits."""
        with self._lock:
            taken, self._values, self._waiting = self._values, {}, 0
        if taken:
            self._on_metrics([MetricBlock((name,), tuple(at), packed(of)) for name, (at, of) in taken.items()])


class CountedSteps:
    """Steps of metrics for which a program gives none: its client sends 0 for each value, and the values are counted instead.

    Once a metric has had another step, its steps are those that are sent.
    """

    def __init__(self) -> None:
        self._next: dict[str, int | None] = {}

    def step(self, name: str, sent: int) -> int:
        if name not in self._next and len(self._next) >= MOST_NAMES:
            return sent
        count = self._next.get(name, 0)
        if sent or count is None:
            self._next[name] = None
            return sent
        self._next[name] = count + 1
        return count
