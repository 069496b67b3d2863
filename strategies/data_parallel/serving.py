"""The runner of a parameter server, which has no model: it takes part in a step by its data strategy alone."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from ..fields import Inputs
from ..param_shard import ParamShard
from ..telemetry.clock_sync import Aligned
from ..telemetry.step_tracer import Recorded


class Serving:
    """Has the methods of `Accumulate` and `Pipeline`, and computes nothing."""

    last = False
    older: Sequence[ParamShard] = ()  # there is one version of the weights

    def plan(self) -> dict[str, Any]:
        """Empty: adds nothing to the `plan` event."""
        return {}

    def timed(self) -> AbstractContextManager[None]:
        """Does nothing: no stage is timed."""
        return nullcontext()

    def bubble(self) -> None:
        """None: there is no pipeline."""

    def replay(self, steps: Sequence[Recorded], clock: Aligned) -> list[None]:  # noqa: ARG002
        """None for each step: there is nothing to simulate."""
        return [None] * len(steps)

    def expect(self, following: Callable[[], Any]) -> None:
        """Does nothing: a step ends before the next one begins."""

    def before_update(self) -> None:
        """Does nothing: no pass of the next step has run."""

    def train(self, inputs: Inputs, targets: torch.Tensor) -> torch.Tensor:  # noqa: ARG002
        """0: a server has no share of the loss."""
        return torch.zeros((), device=targets.device)

    def validate(self, inputs: Inputs, targets: torch.Tensor) -> torch.Tensor:
        """0, as in training."""
        return self.train(inputs, targets)
