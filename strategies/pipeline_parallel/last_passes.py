"""Which gradients a stage's last pass of a step makes final: those of weights that no other stage of this rank has yet to compute.

A stage's gradients are final after its last backward pass, or after its last pass for weights if a schedule splits backward passes. If
one rank holds several stages with a tied weight (`tied_weights.py`), it is a parameter of all of them, and the latest one counts.

Replicas of a stage run the same passes in the same order, and reduce the same buckets at the same places in between. So what is free of
deadlocks for one pipeline is so for all: rank by rank, what a rank waits for is what comes earlier in the one pipeline's own order.
`workers/dry_run/rendezvous.py` checks that for all ranks, as if each ran its messages and collectives one after the other.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager

from torch import nn

from ..data_strategy import DataStrategy


class LastPasses:
    """`stages` has the parameters of each of this rank's stages."""

    def __init__(self, stages: Sequence[Sequence[nn.Parameter]], data: DataStrategy) -> None:
        self._stages, self._data = stages, data
        self.begin()

    def begin(self) -> None:
        """A step begins: every stage has its last pass ahead of it."""
        self._ahead = Counter(value for values in self._stages for value in values)

    def of(self, number: int) -> AbstractContextManager[None]:
        """A context for the last pass of stage `number`."""
        values = self._stages[number]
        self._ahead.subtract(values)
        return self._data.finishing([value for value in values if not self._ahead[value]])
