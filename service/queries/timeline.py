"""A job's timeline: its states by attempt and generation, with incidents, repairs and changes of layout.

However long the history, at most `MOST` events of each kind are read, the newest; where that leaves older ones out, the line begins with
the first moment of which everything is known, and says so.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from sqlalchemy.engine import RowMapping

from ..schemas.timeline import Plan, StateSpan, Timeline, TimelineEvent
from ..states import FINAL, State
from ..store import events as event_rows
from ..store.engine import Store
from .jobs import existing

#: About the number of columns of a screen.
MOST: Final = 300
KINDS: Final = ("state", "incident", "repair", "reshard")


async def read(store: Store, job: str) -> Timeline:
    """The timeline of a job (id or name). Raises JobNotFound."""
    async with store.read() as tx:
        job_id = (await existing(tx, job))["id"]
        kinds = [await event_rows.of_kind_before(tx, job_id, kind, None, MOST + 1) for kind in KINDS]
    return build(kinds)


async def plan(store: Store, job: str) -> Plan:
    """The newest plan of a job's gang (job id or name); empty before the first plan. Raises JobNotFound."""
    async with store.read() as tx:
        row = await event_rows.newest(tx, (await existing(tx, job))["id"], "plan")
    return Plan() if row is None else Plan.model_validate(row["data"])


def build(kinds: Sequence[Sequence[RowMapping]]) -> Timeline:
    """The timeline of events by kind, each newest first. Events beyond `MOST` only mark the timeline as incomplete."""
    begins = max((rows[MOST - 1]["position"] for rows in kinds if len(rows) > MOST), default=0)
    rows = sorted(
        (row for of in kinds for row in of if row["position"] >= begins), key=lambda row: int(row["position"])
    )
    marks = [_mark(row) for row in rows if row["kind"] != "state"]
    return Timeline(spans=_spans(rows), marks=marks, complete=begins == 0)


def _spans(rows: Iterable[RowMapping]) -> list[StateSpan]:
    spans: list[StateSpan] = []
    for row in rows:
        data, attempt, ts = row["data"], row["attempt"], float(row["ts"])
        last = spans[-1] if spans else None
        if row["kind"] == "state":
            state = str(data.get("state"))
            if last is not None:
                spans[-1] = last.model_copy(update={"ended": max(ts, last.begun)})
            if state not in FINAL:
                generation = _generation(state, attempt, last)
                reason = data.get("reason")
                spans.append(StateSpan(state=state, attempt=attempt, generation=generation, begun=ts, reason=reason))
        elif row["kind"] == "repair" and last is not None and data.get("generation") is not None:
            spans[-1] = last.model_copy(update={"generation": int(data["generation"])})
    return spans


def _generation(state: str, attempt: int, last: StateSpan | None) -> int:
    """The generation of a period. The first rendezvous precedes `running`; a repair's event names the generation that follows it."""
    known = last.generation if last is not None and last.attempt == attempt else 0
    return max(known, 1) if state == State.RUNNING else known


def _mark(row: RowMapping) -> TimelineEvent:
    data = row["data"]
    about = data.get("after") if row["kind"] == "reshard" else data.get("cause")
    return TimelineEvent(
        position=row["position"],
        ts=row["ts"],
        kind=row["kind"],
        attempt=row["attempt"],
        about=str(about or ""),
        rank=data.get("rank"),
        step=data.get("step"),
    )
