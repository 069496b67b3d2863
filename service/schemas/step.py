"""Step records and validations."""

from typing import Any

from pydantic import Field

from . import dataframes
from .base import Value
from .cursor import CursorText


class Step(Value):
    """One optimizer step, over all ranks. Nats per token, seconds; a number that was not finite is null."""

    step: int
    attempt: int = 1
    ts: float | None = Field(None, description="Unix seconds.")
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
        None, description="Share of the devices' peak FLOP/s, 0 to 1; null where that is not known."
    )


class Evaluation(Value):
    """One validation. Losses in nats per token."""

    step: int
    loss: float | None = None
    unigram_loss: float | None = None
    ts: float | None = Field(None, description="Unix seconds.")


class Metrics(Value):
    """Step records, oldest first. `downsampled` says that some steps were left out; extremes of the loss stay."""

    points: list[Step]
    last_step: int = 0
    downsampled: bool = False
    evals: list[Evaluation] = Field(default_factory=list)
    cursor: CursorText = Field("0.0.0", description="An event stream after it continues the curve without a gap.")

    def to_pandas(self) -> Any:
        """The points as a `pandas.DataFrame` by step, with `validation_loss` where one was measured. Needs the extra `pandas`."""
        return dataframes.of_metrics(self)
