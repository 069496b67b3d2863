"""A job's step records and validations."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ..schemas.step import Evaluation, Metrics, Step
from ..store import events as event_rows
from ..store import steps as step_rows
from ..store.engine import Store
from .jobs import cursor_of, existing

FIELDS: Final = tuple(Step.model_fields)


async def metrics(store: Store, job: str, *, since: int = 0, max_points: int = 1000) -> Metrics:
    """Step records after step `since` to the newest, at most `max_points` (2 to 10,000). `job` is an id. Raises JobNotFound."""
    async with store.read() as tx:
        row = await existing(tx, job)
        span = await step_rows.span(tx, row, since)
        low, high = span or (since + 1, since)
        whole = high - low < max_points
        if whole:
            steps = await step_rows.between(tx, row["id"], low, high)
        else:
            steps = await step_rows.extremes(tx, row["id"], low, high, max(1, (max_points - 2) // 2))
        evals = await _evals(tx, row, since, max_points, whole)
    points = [_step(step) for step in steps]
    return Metrics(
        points=points,
        last_step=high if span else since,
        downsampled=not whole,
        evals=evaluations(evals, since, row["step"]),
        cursor=cursor_of(row),
    )


async def _evals(tx: AsyncConnection, job: RowMapping, since: int, most: int, whole: bool) -> Sequence[RowMapping]:
    """All after `since` if the range is `whole`. Where steps were removed by age, there can be more validations than steps."""
    found = await event_rows.evals_after(tx, job["id"], since, job["step"], most + 1) if whole else ()
    if whole and len(found) <= most:
        return found
    if most < 4:  # too few for the extremes
        return await event_rows.of_kind(tx, job["id"], "eval", most)
    return await event_rows.evals(tx, job["id"], job["step"], most)


def evaluations(rows: Any, since: int, newest: int | None) -> list[Evaluation]:
    """The validations in order of step. If a step was validated again after a restart, the later one counts.

    Those beyond the job's `newest` step are of an attempt that a later one, from an older checkpoint, has replaced.
    """
    latest = {int(row["data"]["step"]): row for row in rows}
    return [
        Evaluation(step=step, loss=row["data"].get("loss"), unigram_loss=row["data"].get("unigram_loss"), ts=row["ts"])
        for step, row in sorted(latest.items())
        if step > since and (newest is None or step <= newest)
    ]


def _step(row: RowMapping) -> Step:
    return Step(**{name: row[name] for name in FIELDS})
