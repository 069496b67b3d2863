"""An artificial slowdown of one rank: what `slow-rank` injects, so that finding stragglers can be tried.

It is real work of the training thread's, before each step's forward pass: wall time and CPU time of that rank alone.
"""

import time
from dataclasses import dataclass
from typing import Any


@dataclass
class Slowdown:
    """Steps take `by_s` longer until `until` (monotonic seconds)."""

    by_s: float = 0.0
    until: float = 0.0

    def begin(self, by_s: float, duration_s: float) -> None:
        """From the next step on; called by the control thread."""
        self.by_s, self.until = by_s, time.monotonic() + duration_s

    def apply(self) -> None:
        """Make the training thread compute for nothing, if it is to be slow now."""
        now = time.monotonic()
        if now < self.until:
            _burn(now + self.by_s)

    def to_json(self) -> dict[str, Any]:
        """What is left of it, for the trainer that comes after."""
        return {"by_s": self.by_s, "duration_s": max(0.0, self.until - time.monotonic())}


def _burn(until: float) -> None:
    while time.monotonic() < until:
        sum(range(1000))
