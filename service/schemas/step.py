"""Step records and validations."""

from typing import Any

from pydantic import Field

from . import dataframes
from .base import Value
from .cursor import CursorText


class Step(Value):
    """One optimizer step over all ranks. Losses are in nats per token, times in seconds; a number that was not finite is null."""

    step: int
    attempt: int = 1
    ts: float | None = Field(None, description="Time in Unix seconds.")
    loss: float | None = None
    lr: float | None = None
    grad_norm: float | None = None
    loss_scale: float | None = None
    skipped: bool = False
    tokens: int | None = None
    tokens_per_s: float | None = None
    step_s: float | None = None
    step_s_min: float | None = None
    step_s_median: float | None = None
    step_s_max: float | None = None
    slowest_rank: int | None = None
    mfu: float | None = Field(
        None, description="Model FLOPs utilization, from 0 to 1; null if the devices' peak FLOP/s is not known."
    )


class Evaluation(Value):
    """One validation. Losses are in nats per token."""

    step: int
    loss: float | None = None
    unigram_loss: float | None = None
    ts: float | None = Field(None, description="Time in Unix seconds.")


class Metrics(Value):
    """Step records, oldest first. If `downsampled`, some steps are left out; the lowest and highest losses are kept."""

    points: list[Step]
    last_step: int = 0
    downsampled: bool = False
    evals: list[Evaluation] = Field(
        default_factory=list,
        description="Validations of the same steps. If `downsampled`, those of the whole job are thinned evenly first.",
    )
    cursor: CursorText = Field(
        "0.0.0", description="Cursor from which an event stream continues the curve without a gap."
    )

    def to_pandas(self) -> Any:
        """The points as a `pandas.DataFrame` indexed by step, with `validation_loss`. Needs the extra `pandas`."""
        points = [point.model_dump() for point in self.points]
        return dataframes.of_steps(points, list(Step.model_fields), {one.step: one.loss for one in self.evals})
