"""Numbers of many steps, bucket by bucket."""

from typing import Any

from pydantic import Field

from . import dataframes
from .base import Value
from .cursor import CursorText
from .step import Evaluation


class Series(Value):
    """One number of the steps, bucket by bucket, to six digits; null where no step of a bucket had it."""

    mean: list[float | None]
    low: list[float | None] | None = Field(None, description="null where each step has a bucket of its own.")
    high: list[float | None] | None = None
    last: float | None = Field(
        None, description="At the range's last step (`end`), which shares its bucket with others."
    )


class Curves(Value):
    """Several numbers over a range of steps, in columns. Extremes of each bucket stay."""

    width: int = Field(description="Steps of a bucket, a power of two.")
    starts: list[int] = Field(description="First step of each bucket; those without a step are left out.")
    series: dict[str, Series] = Field(description="By name; those that no step of the range had are left out.")
    evals: list[Evaluation] = Field(default_factory=list, description="Validations of the whole job, evenly thinned.")
    end: int = Field(0, description="The last step of the range; 0 without any.")
    last_step: int = Field(0, description="The job's newest step.")
    cursor: CursorText = Field("0.0.0", description="An event stream after it continues the curves without a gap.")

    def to_pandas(self) -> Any:
        """As a `pandas.DataFrame` by each bucket's first step: means, with `…_low` and `…_high`. Needs the extra `pandas`."""
        return dataframes.of_curves(self)
