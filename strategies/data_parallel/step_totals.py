"""A step's loss, gradient norm and speed over workers that do not take it at the same time. Imports no torch.

A step that a worker did not take, because it was gone, has the mean loss of those that did, and the speed at which they trained their
share of the batch. The sums are exact (`math.fsum`), so that they do not depend on the order in which workers push.
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
        self._present = set(range(workers))
        self._open: dict[int, dict[int, Total]] = {}  # clock → worker → its numbers
        self._known: list[Total] = []

    def add(self, clock: int, worker: int, of_worker: Total) -> None:
        """One worker's numbers of its step `clock`."""
        self._open.setdefault(clock, {})[worker] = of_worker
        self._close(clock)

    def leave(self, worker: int) -> None:
        """`worker` takes no further step."""
        self._present.remove(worker)
        for clock in sorted(self._open):
            self._close(clock)

    def _close(self, clock: int) -> None:
        """The clock's totals, once no worker that is left is missing."""
        if self._present <= self._open[clock].keys():
            parts = list(self._open.pop(clock).values())
            loss, squares, rate = map(math.fsum, zip(*parts, strict=True))
            share = self._workers / len(parts)
            self._known.append(Total(loss * share, squares / len(parts), rate / self._workers))

    def take(self) -> list[Total]:
        """The totals of the next clocks, each once."""
        known, self._known = self._known, []
        return known
