"""The metric of a trial at a rung and at its end.

`loss` of a training job: the mean over the last tenth of the steps up to the rung, as one step's loss is noisy. Its `validation_loss`, and
all that a program logs, also under these names: the first value at the rung or after it, the mean over the ranks that log it. Values
that are not finite are None. A trial that continues a checkpoint after a rung has no loss there.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ..states import FINAL
from ..store import events, logged_metrics, steps
from ..store.packing.metric_curve import Bucket

#: The share of the steps before a rung that the loss is a mean of.
_SHARE: Final = 10
#: What a training job reports itself.
_REPORTED: Final = ("loss", "validation_loss")


@dataclass(frozen=True)
class Metric:
    """What trials are compared by. `logged`: it is among the values that the job logs."""

    name: str
    logged: bool

    @staticmethod
    def of(name: str, spec: Mapping[str, Any]) -> "Metric":
        """The metric of this name of jobs with this spec."""
        return Metric(name, "train" not in spec or name not in _REPORTED)


@dataclass(frozen=True)
class Passed:
    """The trial began after this rung."""

    rung: int

    def __str__(self) -> str:
        return (
            f"sweep.asha.min_steps: The trial continues a checkpoint after step {self.rung}, where its loss would be compared. "
            "Give a step after the checkpoint's."
        )


def reached(trial: RowMapping, metric: Metric, rungs: Sequence[int]) -> bool:
    """Whether the trial may have a value at the first of these rungs: its steps, or those of what it logs, came to it."""
    newest = trial["metric_step"] if metric.logged else trial["job_step"]
    return bool(rungs) and newest is not None and newest >= rungs[0]


async def at_rungs(
    tx: AsyncConnection, trial: RowMapping, metric: Metric, rungs: Sequence[int]
) -> list[float | None] | Passed:
    """The metric at those of these rungs that the trial has reached, lowest first. `trial`: a row of `store.sweeps.busy`."""
    found: list[float | None] = []
    for rung in rungs:
        value = await _at(tx, trial, metric, rung)
        if isinstance(value, Passed):
            return value
        if value is None:
            break
        found.append(value if math.isfinite(value) else None)
    return found


async def _at(tx: AsyncConnection, trial: RowMapping, metric: Metric, rung: int) -> float | Passed | None:
    """The metric at a rung; None: it was not reached yet; not a number: it was not finite."""
    if not reached(trial, metric, [rung]):
        return None
    if metric.logged:
        return await _logged(tx, trial, metric.name, rung)
    if metric.name == "loss":
        mean = await steps.mean_loss(tx, trial["job_id"], rung - max(1, rung // _SHARE) + 1, rung)
        if mean is None and (await steps.earliest(tx, trial["job_id"]) or 0) > rung:
            return Passed(rung)
        return math.nan if mean is None else mean
    event = await events.first_at(tx, trial["job_id"], "eval", rung)
    if event is None:
        return None
    loss = event["data"]["loss"]
    return math.nan if loss is None else float(loss)


async def _logged(tx: AsyncConnection, trial: RowMapping, name: str, rung: int) -> float | None:
    """The first value at the rung or after it; None: ranks that log it may not have sent theirs yet.

    They have if a later step was logged, or if there are as many values as before that step.
    """
    width, newest, buckets = await _buckets(tx, trial, name, rung, None)
    if not buckets:
        return math.nan
    place, bucket = next(iter(buckets.items()))
    if place == newest and trial["job_world_size"] > 1 and trial["job_state"] not in FINAL:
        _, _, before = await _buckets(tx, trial, name, 0, place * width - 1)
        if not before or bucket.count < before[max(before)].count:
            return None
    return bucket.total / bucket.count


async def _buckets(
    tx: AsyncConnection, trial: RowMapping, name: str, low: int, high: int | None
) -> tuple[int, int, dict[int, Bucket]]:
    """The width of a metric's buckets, the place of its newest step, and its buckets between two steps by place."""
    found = await logged_metrics.read(tx, trial["job_id"], [name], low, high)
    if name not in found:
        return 1, 0, {}
    row, buckets = found[name]
    return row["width"], row["last_step"] // row["width"], buckets


def at_end(trial: RowMapping, metric: Metric) -> float | None:
    """The metric of a job that has succeeded; None if it has no finite one."""
    reported = (trial["summary"] or {}).get("last_loss" if metric.name == "loss" else metric.name)
    value = trial["metric_last"] if metric.logged else reported
    return float(value) if value is not None and math.isfinite(value) else None
