"""The mean over the targets that count: how many of them a step has over all ranks, for a factor of its loss and gradients.

The loss is summed over tokens and divided by the number of tokens of a step, which is known before the step. Where documents are packed
(`documents.py`), fewer targets count, and their number differs from step to step. Every rank counts its own, and the step's only
collective adds them up. Loss and gradients are divided by `share` after it, together with the loss scale. So accumulation, stages and
replicas need no number of another rank before their backward passes.
"""

from collections.abc import Sequence

import torch

from .documents import count
from .telemetry.logged_values import Number


class CountedTargets:
    """The targets since `begin`. Unless `packed`, all of them count, and no number is in the collective.

    `here`: whether this rank's targets count, as its loss does; `tokens`: the number by which the loss was divided.
    """

    def __init__(self, packed: bool, here: bool, tokens: int) -> None:
        self._packed, self._here, self._tokens = packed, here, tokens
        self._counted: Number = 0

    def begin(self) -> None:
        """Before the passes of a step."""
        self._counted = 0  # of whole numbers: fp32 would round them

    def add(self, targets: torch.Tensor) -> None:
        """Targets [rows, positions] of this rank."""
        if self._packed and self._here:
            self._counted = self._counted + count(targets)

    def ballot(self) -> list[Number]:
        """This rank's summand."""
        return [self._counted] if self._packed else []

    def share(self, sums: Sequence[float]) -> float:
        """The share of the tokens whose targets count, from the sum of all ranks' ballots. A step without one has a loss of 0."""
        return max(sums[0], 1.0) / self._tokens if self._packed else 1.0
