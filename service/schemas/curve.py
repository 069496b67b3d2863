"""Metrics over a range of steps, in buckets."""

from typing import Any

from pydantic import Field

from . import dataframes
from .base import Value
from .cursor import CursorText
from .step import Evaluation


class Series(Value):
    """One metric by bucket, rounded to six digits; null where no step of a bucket has it."""

    mean: list[float | None] = Field(description="Mean by bucket.")
    low: list[float | None] | None = Field(None, description="Lowest value by bucket; null if each bucket is one step.")
    high: list[float | None] | None = Field(
        None, description="Highest value by bucket; null if each bucket is one step."
    )
    last: float | None = Field(None, description="Value at the last step of the range (`end`).")


class Curves(Value):
    """Several metrics over a range of steps, as columns. Each bucket has its mean, lowest and highest value."""

    width: int = Field(description="Number of steps in a bucket, a power of two.")
    starts: list[int] = Field(description="First step of each bucket. Buckets without a step are left out.")
    series: dict[str, Series] = Field(
        description="Metric name → values. Metrics that no step of the range has are left out."
    )
    evals: list[Evaluation] = Field(
        default_factory=list,
        description="Validations of the whole job. More than 400 are thinned evenly; the lowest and highest losses are kept.",
    )
    end: int = Field(0, description="Last step of the range; 0 if the range has no step.")
    last_step: int = Field(0, description="The job's newest step.")
    cursor: CursorText = Field(
        "0.0.0", description="Cursor from which an event stream continues the curves without a gap."
    )

    def to_pandas(self) -> Any:
        """The means as a `pandas.DataFrame` indexed by each bucket's first step, with `…_low` and `…_high`. Needs the extra `pandas`."""
        return dataframes.of_curves(self.starts, self.series)
