"""A step's loss, gradient norm and speed over workers that do not take it at the same time. Imports no torch.

The sums are exact (`math.fsum`), so that they do not depend on the order in which workers push.
"""

import math
from typing import NamedTuple


class Total(NamedTuple):
    """Of a step, or of one worker in it.

    `loss`: the sum of the workers' summands; `squares`: the mean of the squared norms of their own mean gradients; `rate`: the mean of
    their steps per second.
    """

    loss: float
    squares: float
    rate: float


class StepTotals:
    """The totals of the clocks that every one of `workers` has pushed, in order. Held are no more clocks than workers are apart."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._open: dict[int, list[Total]] = {}
        self._known: list[Total] = []

    def add(self, clock: int, of_worker: Total) -> None:
        """One worker's numbers of its step `clock`."""
        parts = self._open.setdefault(clock, [])
        parts.append(of_worker)
        if len(parts) == self._workers:
            loss, squares, rate = map(math.fsum, zip(*self._open.pop(clock), strict=True))
            self._known.append(Total(loss, squares / self._workers, rate / self._workers))

    def take(self) -> list[Total]:
        """The totals of the next clocks, each once."""
        known, self._known = self._known, []
        return known
