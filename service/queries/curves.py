"""Metrics of a job's steps as curves over a range, in a bounded number of buckets, each with its extremes and mean.

A bucket's width is a power of two and its position is independent of the requested range, so that a reader may halve a curve by
itself and combine ranges. If each step has a bucket of its own, its value is the mean and both extremes.
"""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy.engine import RowMapping

from ..schemas.curve import Curves, Series
from ..store import events as event_rows
from ..store import rollups, steps
from ..store.engine import Store
from ..store.tables import SERIES
from .jobs import cursor_of, existing
from .steps import evaluations

__all__ = ["MOST", "SERIES", "curves", "width_of"]

#: With this many buckets, all series together stay below 300 kB of JSON.
MOST: Final = 800
#: Validations returned with a curve, at most.
_EVALS: Final = 400
#: Significant digits of a number.
_DIGITS: Final = 6


async def curves(
    store: Store, job: str, names: Sequence[str], *, low: int = 1, high: int | None = None, buckets: int = 400
) -> Curves:
    """Series, of `SERIES`, of steps `low` to `high` (None: to the newest) of a job (id or name). Raises JobNotFound."""
    wanted = [name for name in SERIES if name in names]
    async with store.read() as tx:
        row = await existing(tx, job)
        span = await steps.span(tx, row, 0)
        evals = evaluations(await event_rows.evals(tx, row["id"], row["step"], _EVALS), 0, row["step"])
        if span is None:
            return Curves(width=1, starts=[], series={}, evals=evals, cursor=cursor_of(row))
        first, last = max(low, span[0]), min(span[1] if high is None else high, span[1])
        width = width_of(last - first + 1, buckets)
        rows = await rollups.read(tx, row["id"], wanted, width, first, last) if first <= last else ()
        end = next(iter(await steps.between(tx, row["id"], last, last) if rows else ()), None)
    series = {name: _series(rows, name, width, end) for name in wanted}
    known = {name: one for name, one in series.items() if any(value is not None for value in one.mean)}
    starts = [int(each["place"]) * width + 1 for each in rows]
    return Curves(
        width=width,
        starts=starts,
        series=known,
        evals=evals,
        end=end["step"] if end else 0,
        last_step=span[1],
        cursor=cursor_of(row),
    )


def width_of(count: int, buckets: int) -> int:
    """Steps of a bucket, so that `count` steps fill no more than `buckets`, whichever step is the first."""
    width = 1
    while -(-(count - 1) // width) + 1 > buckets:
        width *= 2
    return width


def _series(rows: Sequence[RowMapping], name: str, width: int, end: RowMapping | None) -> Series:
    mean, last = [_mean(row, name) for row in rows], _short(end[name]) if end else None
    if width == 1:
        return Series(mean=mean, last=last)
    low, high = ([_short(row[f"{name}_{bound}"]) for row in rows] for bound in ("low", "high"))
    return Series(mean=mean, low=low, high=high, last=last)


def _mean(row: RowMapping, name: str) -> float | None:
    count = row[f"{name}_count"]
    return _short(row[f"{name}_sum"] / float(count)) if count else _short(row[f"{name}_high"])


def _short(value: Any) -> float | None:
    return None if value is None else float(f"{value:.{_DIGITS}g}")
