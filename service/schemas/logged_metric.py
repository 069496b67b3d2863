"""Metrics that programs of users' own log."""

from typing import Any

from pydantic import Field

from . import dataframes
from .base import Value
from .curve import Series


class LoggedValue(Value):
    """The newest value of a metric, and its extremes."""

    last_step: int = Field(description="The newest step that has it.")
    last: float | None = Field(None, description="Value at that step; null if it is not finite.")
    lowest: float | None = Field(None, description="Lowest value of all steps; null if none is finite.")
    highest: float | None = Field(None, description="Highest value of all steps; null if none is finite.")


class LoggedMetric(LoggedValue):
    """One metric of a job, by name."""

    name: str
    width: int = Field(
        description="Number of steps of which the mean and the extremes are kept, a power of two. 1: every step is kept."
    )


class LoggedMetrics(Value):
    """One page of a job's metrics, in order of their names. `next` is the `after` of the next request, null on the last page."""

    items: list[LoggedMetric]
    next: str | None = None


class JobLoggedValues(Value):
    """Newest values and extremes of a job's metrics."""

    job: str
    values: dict[str, LoggedValue] = Field(
        description="Metric name → newest value and extremes. Metrics that the job has not are left out."
    )


class LoggedValues(Value):
    """Newest values and extremes of several metrics of many jobs. Jobs that logged none of them are left out."""

    items: list[JobLoggedValues]


class LoggedName(Value):
    """A name under which jobs logged a metric."""

    name: str
    jobs: int = Field(description="Number of the jobs that logged it.")
    last_step: int = Field(description="The newest step at which one of them did.")


class LoggedNames(Value):
    """Names of metrics, those of the most jobs first."""

    items: list[LoggedName]
    more: bool = Field(False, description="There are more names than `limit`. `text` finds them.")


class LoggedCurve(Series):
    """One metric over a range of steps, in buckets of its own. Values of several ranks at a step are in one bucket."""

    width: int = Field(description="Number of steps in a bucket, a power of two.")
    starts: list[int] = Field(description="First step of each bucket. Buckets without a value are left out.")
    last_step: int = Field(description="The newest step of the whole metric.")


class LoggedCurves(Value):
    """Several metrics over a range of steps."""

    series: dict[str, LoggedCurve] = Field(
        description="Metric name → curve. Metrics that the job has not are left out."
    )

    def to_pandas(self) -> Any:
        """The means as a `pandas.DataFrame`: a row for each step at which a bucket begins, a column for each metric. Needs the extra
        `pandas`."""
        return dataframes.of_logged_curves(self.series)
