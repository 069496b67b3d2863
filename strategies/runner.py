"""The runner of a rank: what it computes in a step's forward and backward passes, by micro-batches, stages, or not at all.

Each kind overrides what it has. The defaults are those of a rank without a pipeline, whose step ends before the next one begins.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from .fields import Inputs
from .param_shard import ParamShard
from .telemetry.clock_sync import Aligned
from .telemetry.step_tracer import Recorded


class Runner(ABC):
    """`last`: whether this rank has the loss. `older`: the older version of the weights as shards, where a rank holds two."""

    last: bool
    older: Sequence[ParamShard] = ()

    @abstractmethod
    def train(self, inputs: Inputs, targets: torch.Tensor) -> torch.Tensor:
        """Forward and backward passes of a step; returns this rank's share of the loss."""

    @abstractmethod
    def validate(self, inputs: Inputs, targets: torch.Tensor) -> torch.Tensor:
        """Its share of the loss, forward only."""

    def prepare(self, inputs: Inputs) -> None:  # noqa: B027
        """Find out what it needs to know of batches like `inputs` before their passes are timed. Collective."""

    def plan(self) -> dict[str, Any]:
        """What it adds to the `plan` event."""
        return {}

    def timed(self) -> AbstractContextManager[None]:
        """Time the step inside, for `bubble`."""
        return nullcontext()

    def bubble(self) -> Any:
        """The bubble of the last timed step; None without a pipeline."""
        return None

    def replay(self, steps: Sequence[Recorded], clock: Aligned) -> Sequence[Any]:  # noqa: ARG002
        """For each traced step its simulation; None without a pipeline."""
        return [None] * len(steps)

    def expect(self, following: Callable[..., Any], left: int = 0) -> None:  # noqa: B027  (only delayed schedules need batches ahead)
        """`following(number)` returns the batch that many (default: one) after the one that is trained next, None if there is none.

        `left`: how many there are after it.
        """

    def before_update(self) -> None:  # noqa: B027
        """Called before the optimizer writes the weights."""
