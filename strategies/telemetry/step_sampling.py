"""Which steps have their busy and wait times measured: every step on CPUs; on CUDA as many as cost at most `COST` of the time.

Rules that it keeps: all ranks measure the same steps, by their numbers, because busy times are compared over ranks; no message is
sent for that. Each rank votes for the interval that it needs in the sums of the step (`grad_clip.py`). Votes are whole numbers, so
their sum is exact, and all ranks take the same mean of it.
"""

import math
from collections.abc import Sequence
from typing import Final

#: The share of a step's time that the host may spend on events.
COST: Final = 0.005
#: A rank needs half of that: the mean over ranks decides, and a rank in the middle of a pipeline waits twice as often as one at its end.
_OWN_COST: Final = COST / 2
#: The longest interval, so that slow ranks are still found.
LONGEST: Final = 50
#: All of the first steps of a run are measured: ranks decide by them how often to take snapshots (`workers/trainer/snapshot_cost.py`).
FIRST: Final = 16


class StepSampling:
    """`every`: the interval between two measured steps, 1 for the `first` ones.

    Unless `sampled`, all steps are measured and there are no votes.
    """

    def __init__(self, sampled: bool, first: int = FIRST) -> None:
        self.every = 1
        self._sampled, self._first = sampled, first
        self._needed, self._decided = 1, 0

    def due(self, step: int) -> bool:
        """Whether the step is measured."""
        return step % self.every == 0

    def votes(self) -> tuple[float, ...]:
        """This rank's summands."""
        return (float(self._needed),) if self._sampled else ()

    def decide(self, sums: Sequence[float], ranks: int) -> None:
        """Take the interval from the sums of all ranks' votes, after each step."""
        self._decided += 1
        if sums and self._decided >= self._first:
            self.every = math.ceil(sums[0] / ranks)

    def measured(self, cost_s: float, step_s: float) -> None:
        """A step of `step_s` seconds was measured, for which the host spent `cost_s`."""
        share = cost_s / max(step_s, 1e-9)
        self._needed = max(1, min(LONGEST, math.ceil(share / _OWN_COST)))
