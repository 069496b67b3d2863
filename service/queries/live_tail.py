"""A job's items after a cursor: events, steps, log lines and the newest sample of its ranks, in order of time."""

from heapq import merge
from itertools import takewhile
from math import inf
from operator import attrgetter
from typing import Any, Final

from sqlalchemy.engine import RowMapping

from ..errors import JobNotFound
from ..schemas.cursor import Cursor
from ..schemas.live_tail import Scope, Tail, TailItem
from ..states import FINAL, State
from ..store import events as event_rows
from ..store import jobs as job_rows
from ..store import logs as log_rows
from ..store import rank_samples as rank_rows
from ..store import steps as step_rows
from ..store.engine import Store
from ..store.log_search import Size
from ..store.packing.rank_sample import sample_of
from .steps import FIELDS

#: Bytes of log lines at which a batch ends: an API process keeps many (`api/http/single_flight.py`).
LOG_BYTES = 1 << 20
_PLAIN: Final = Scope()


async def tail(
    store: Store,
    job: str,
    cursor: Cursor,
    scope: Scope = _PLAIN,
    *,
    limit: int = 500,
) -> Tail:
    """The items of the job (an id) after `cursor`. Call again with the returned cursor until `done`.

    Of the rank samples, only the newest is returned. If nothing is new, this takes one short query.
    Raises JobNotFound.
    """
    async with store.read() as tx:
        # The state is read first: once it is final, nothing is stored any more, so short reads below are the end.
        head = await job_rows.positions(tx, job)
        if head is None:
            raise JobNotFound(f"There is no job {job[:80]!r}.", remedy="See `shardyard list` for the jobs that exist.")
        more_events = head["event_pos"] > cursor.event
        events = await event_rows.after(tx, job, cursor.event, limit) if more_events else ()
        steps = await step_rows.after(tx, job, cursor.step, limit) if head["step_pos"] > cursor.step else ()
        more_logs = scope.logs and head["log_pos"] > cursor.log
        most = Size(limit, LOG_BYTES)
        lines, cut = await log_rows.after(tx, job, scope.rank, cursor.log, most) if more_logs else ((), False)
        more_ranks = scope.ranks and head["rank_pos"] > cursor.ranks
        samples = await rank_rows.before(tx, job, None, 1) if more_ranks else ()
    ends = [rows[-1]["ts"] for rows in (events, steps) if len(rows) == limit]
    ends += [lines[-1]["ts"]] if cut else []
    items = _in_order(cursor, min(ends, default=inf), events, steps, lines, samples)
    state = State(head["state"])
    done = state in FINAL and not ends
    return Tail(items, items[-1].cursor if items else cursor, state, done)


def _in_order(cursor: Cursor, cut: float, events: Any, steps: Any, lines: Any, samples: Any) -> list[TailItem]:
    """By time, but each table in the order of its positions; of equal times the events last, so that an end is last.

    `cut`: where the first table ends that was cut, and may continue before the other tables' next rows; there the answer ends.
    """
    parts = (
        [
            TailItem("rank_metrics", row["ts"], sample_of(row).model_dump(), Cursor(ranks=row["position"]))
            for row in samples
        ],
        [TailItem("log", row["ts"], _log_data(row), Cursor(log=row["position"])) for row in lines],
        [TailItem("step", row["ts"], _step_data(row), Cursor(step=row["position"])) for row in steps],
        [TailItem(row["kind"], row["ts"], row["data"], Cursor(event=row["position"])) for row in events],
    )
    items = []
    merged = list(merge(*parts, key=attrgetter("ts")))
    # If a clock was set back, nothing may lie before the cut: then progress matters more than order.
    for item in list(takewhile(lambda item: item.ts <= cut, merged)) or merged:
        cursor = Cursor(*map(max, cursor, item.cursor))
        items.append(TailItem(item.kind, item.ts, item.data, cursor))
    return items


def _step_data(row: RowMapping) -> dict[str, Any]:
    return {name: row[name] for name in FIELDS if name != "ts"}


def _log_data(row: RowMapping) -> dict[str, Any]:
    names = ("rank", "attempt", "line", "stream", "text")
    return {"position": row["position"], **{name: row[name] for name in names}}
