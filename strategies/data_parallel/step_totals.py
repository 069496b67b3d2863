"""A step's loss and gradient norm over workers that do not take it at the same time. Imports no torch.

The sums are exact (`math.fsum`), so that they do not depend on the order in which workers push.
"""

import math

#: A step's loss, and the mean over workers of the squared norm of each one's own mean gradient.
Total = tuple[float, float]


class StepTotals:
    """The totals of the clocks that every one of `workers` has pushed, in order. It holds those of no more clocks than workers are apart."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._open: dict[int, list[Total]] = {}
        self._known: list[Total] = []

    def add(self, clock: int, loss: float, squares: float) -> None:
        """One worker's summand of the loss at `clock`, and its squared norm."""
        summands = self._open.setdefault(clock, [])
        summands.append((loss, squares))
        if len(summands) == self._workers:
            losses, norms = zip(*self._open.pop(clock), strict=True)
            self._known.append((math.fsum(losses), math.fsum(norms) / self._workers))

    def take(self) -> list[Total]:
        """The totals of the next clocks, each once."""
        known, self._known = self._known, []
        return known
