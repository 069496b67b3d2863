"""An artificial slowdown of one rank: the fault `slow-rank`, which tests straggler detection.

It is real work of the training thread, before each step's forward pass: wall time and CPU time of that rank alone.
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
        """Start the slowdown with the next step. The control thread calls it."""
        self.by_s, self.until = by_s, time.monotonic() + duration_s

    def apply(self) -> None:
        """If the slowdown is active, keep the calling thread busy for `by_s`."""
        now = time.monotonic()
        if now < self.until:
            _burn(now + self.by_s)

    def to_json(self) -> dict[str, Any]:
        """The rest of the slowdown, for the next trainer."""
        return {"by_s": self.by_s, "duration_s": max(0.0, self.until - time.monotonic())}


def _burn(until: float) -> None:
    while time.monotonic() < until:
        sum(range(1000))
