"""PipeDream-2BW in the order of its paper (2006.09503, section 3.1): every rank runs one forward and one backward pass in turns.

Rank i (0-based, of p) is p − 1 − i micro-batches ahead in its forward passes, across the end of a step. So at the end of a step of m ≥ p
micro-batches it has run p − 1 − i forward passes of the next batch, at the version that this batch uses, and no backward pass of it. It
holds p − i micro-batches and one sum of gradients.

A rank ends a step p − 1 − i backward passes after the last one. Where ranks need not wait for each other at the end of a step
(`ends_apart`), the last rank is in the next step by then, and equal stages have no bubble. Where they must, as for clipping, it is p − 1
backward passes in each step.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from .continuous import ContinuousPipeline
from .schedule_order import Order, alternating_order


class AlternatingPipeline(ContinuousPipeline):
    """Micro-batches are numbered as in `ContinuousPipeline`. In slot s the backward pass is that of micro-batch s."""

    @property
    def order(self) -> Order:
        """The actions of every rank in a step of the steady state."""
        return alternating_order(self._ranks, self._microbatches)

    @property
    def _fill(self) -> int:
        return self._ranks - 1

    @contextmanager
    def _own_sums(self, goes_on: bool) -> Iterator[None]:  # noqa: ARG002
        """Nothing is kept apart: no backward pass is of the next step."""
        yield

    def _run(self, slot: int) -> None:
        """One slot of this rank: the forward pass and its messages, then the backward pass after that of the rank behind."""
        forward = slot + self._ranks - 1 - self._rank
        self._down.wait()
        output = self._forward(forward) if self._exists(forward) else None
        self._down.exchange(output, forward + 1 if self._rank and self._exists(forward + 1) else None)
        if slot < 0:
            return
        if not self.last:
            self._up.exchange(None, slot)
            self._up.wait()
        gradient = self._backward(slot)
        if not self._first:
            self._up.exchange(gradient, None)
