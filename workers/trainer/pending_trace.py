"""The request for a step trace that a rank has received and not begun. Imports no torch: the control thread sets it."""

import zlib

from ..messages.trace_request import Trace


class PendingTrace:
    """The control thread orders a trace. The training thread votes for it, and begins it once all ranks vote for the same one."""

    def __init__(self) -> None:
        self._ordered: Trace | None = None
        self._first = 0
        self._begun: tuple[str, ...] = ()
        self._voted_for: Trace | None = None
        self._running = False

    def order(self, trace: Trace, first: int = 0) -> None:
        """Begin `trace`, not before step `first`. Idempotent by its id. A newer order replaces one that has not begun."""
        if trace.id not in self._begun:
            self._ordered, self._first = trace, first

    def vote(self, step: int) -> float:
        """This rank's summand: which trace may begin after `step`. 0: none, or one is running."""
        may_begin = not self._running and step + 1 >= self._first
        self._voted_for = self._ordered if may_begin else None
        return number_of(self._voted_for)

    def begin(self, votes: float, world: int) -> Trace | None:
        """The trace that begins, by the sum of all votes. An order that came in since this rank voted stays pending."""
        trace = self._voted_for
        if trace is None or votes != number_of(trace) * world:
            return None
        self._begun, self._running = (*self._begun, trace.id), True
        if self._ordered == trace:
            self._ordered = None
        return trace

    def end(self) -> None:
        """End the running trace."""
        self._running = False


def number_of(trace: Trace | None) -> float:
    """A number that identifies a trace; 0: none.

    Whole and below 2³³, so that sums over ranks are exact and votes for different traces do not look like agreement.
    """
    return 0.0 if trace is None else 1.0 + zlib.crc32(trace.id.encode())
