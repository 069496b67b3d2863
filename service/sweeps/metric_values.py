"""The metric of a trial at a rung and at its end.

`loss`: the mean over the last tenth of the steps up to the rung, as one step's loss is noisy. `validation_loss`, and what a job logs: the
first value at the rung or after it. Values that are not finite are None.
"""

import math
from collections.abc import Sequence
from typing import Final

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ..store import events, logged_metrics, steps

#: The share of the steps before a rung that the loss is a mean of.
_SHARE: Final = 10


async def at_rungs(tx: AsyncConnection, trial: RowMapping, metric: str, rungs: Sequence[int]) -> list[float | None]:
    """The metric at those of these rungs that the trial has reached, lowest first. `trial`: a row of `store.sweeps.busy`."""
    found: list[float | None] = []
    for rung in rungs:
        value = await _at(tx, trial, metric, rung)
        if value is None:
            break
        found.append(value if math.isfinite(value) else None)
    return found


async def _at(tx: AsyncConnection, trial: RowMapping, metric: str, rung: int) -> float | None:
    """The metric at a rung; None: it was not reached yet; not a number: it was not finite."""
    if metric == "loss":
        if (trial["job_step"] or 0) < rung:
            return None
        mean = await steps.mean_loss(tx, trial["job_id"], rung - max(1, rung // _SHARE) + 1, rung)
        return math.nan if mean is None else mean
    if metric == "validation_loss":
        event = await events.newest(tx, trial["job_id"], "eval")
        if event is None or event["data"]["step"] < rung:
            return None
        loss = event["data"]["loss"]
        return math.nan if loss is None else float(loss)
    if trial["metric_step"] is None or trial["metric_step"] < rung:
        return None
    read = await logged_metrics.read(tx, trial["job_id"], [metric], rung, None)
    buckets = read[metric][1].values() if metric in read else ()
    return next((bucket.total / bucket.count for bucket in buckets), math.nan)


def at_end(trial: RowMapping, metric: str) -> float | None:
    """The metric of a job that has succeeded; None if it has no finite one."""
    summary = trial["summary"] or {}
    if metric in ("loss", "validation_loss"):
        value = summary.get("last_loss" if metric == "loss" else "validation_loss")
    else:
        value = trial["metric_last"]
    return float(value) if value is not None and math.isfinite(value) else None
