"""A training step's numbers: as they come from the ranks, and as they are reported."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...strategies.telemetry.wait_time import StepTiming
from ..messages.stop_request import StopRequest


@dataclass(frozen=True)
class StepStats:
    """A step's sums over all ranks: the same on every rank, except `timing`."""

    step: int
    loss: float  # mean over the global batch
    grad_norm: float  # before clipping; inf if it is not finite
    grad_factor: float  # the factor by which the gradients are too large
    loss_scale: float | None  # None: there is no loss scaling
    skipped: bool  # fp16 gradients overflowed: no update
    stop: StopRequest  # after this step
    trace_votes: float
    timing: StepTiming | None  # of this rank; None: not measured in this step
    logged: Mapping[str, float] = field(default_factory=dict)  # means of what the model itself logged


@dataclass(frozen=True)
class StepRecord:
    """A step that is done. `seconds` is its length by this rank's clock.

    `mean_s`: harmonic mean over workers that take steps of different length, by which the job trains; None: all take equally long.
    """

    stats: StepStats
    lr: float
    seconds: float
    mean_s: float | None = None

    @property
    def step(self) -> int:
        return self.stats.step
