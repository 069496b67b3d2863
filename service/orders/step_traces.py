"""Traces of steps that users ask for: stored as orders, carried to the gang by its dispatcher, settled once, by the event that ends them.

A trace is of the attempt that runs when it is asked for; when that ends before, it has failed. A job has one open trace at a time, and
keeps its newest ones. What the ranks tell of a step is large: it is kept part by part (`trace_spans.py`), never as an event.
"""

import re
import time
from typing import Any, Final

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ...workers.messages.event import TraceEvent, TraceFinishedEvent, to_json
from ...workers.messages.trace_request import TRACED_RANKS
from ...workers.messages.trace_request import Trace as GangTrace
from ..errors import IdempotencyConflict, InvalidCursor, JobNotRunning, TraceNotFound, TraceOpen
from ..ids import new_trace_id
from ..queries.jobs import existing
from ..schemas.trace import Trace, Traces
from ..states import State
from ..store import events
from ..store import jobs as job_rows
from ..store import traces as rows
from ..store.engine import Store
from ..store.packing import trace_spans

#: Traces that are kept of a job.
KEPT: Final = 10

_ID = re.compile(r"trace-[0-9a-z]{26}")


async def ask(store: Store, job: str, steps: int, idempotency_key: str | None, actor: str) -> Trace:
    """Store the order; the job's dispatcher sees it within `poll_s`. `job` is an id or a name.

    Raises JobNotFound, JobNotRunning, TraceOpen, IdempotencyConflict; then nothing is stored.
    """
    async with store.write() as tx:
        found = await job_rows.lock(tx, (await existing(tx, job))["id"])
        assert found is not None
        known = await rows.by_key(tx, found["id"], idempotency_key) if idempotency_key else None
        if known is not None:
            _check_replayed(known, steps)
            return await _record(tx, found, known)
        await _check(tx, found)
        return await _record(tx, found, await rows.insert(tx, _row(found, steps, idempotency_key, actor), KEPT))


def _row(job: RowMapping, steps: int, idempotency_key: str | None, actor: str) -> dict[str, Any]:
    now = time.time()
    mine = {"id": new_trace_id(now), "job_id": job["id"], "attempt": job["attempt"], "asked_at": now}
    return {**mine, "steps": steps, "state": "open", "actor": actor, "idempotency_key": idempotency_key}


def _check_replayed(row: RowMapping, steps: int) -> None:
    if row["steps"] != steps:
        raise IdempotencyConflict(
            f"This idempotency key belongs to {row['id']}, which is a trace of {row['steps']} steps.",
            field="Idempotency-Key",
            remedy="Use a new key for a new trace.",
        )


async def _check(tx: AsyncConnection, job: RowMapping) -> None:
    if job["state"] != State.RUNNING:
        remedy = "Wait until it runs: shardyard watch JOB" if job["finished_at"] is None else "Submit it again."
        message = f"{job['id']} is {job['state']}; steps are traced while a job runs."
        raise JobNotRunning(message, field="job", remedy=remedy)
    open_one = await rows.open_one(tx, job["id"])
    if open_one is not None:
        remedy = "Wait for its end: shardyard trace JOB --list"
        raise TraceOpen(f"{open_one['id']} is being recorded.", field="job", remedy=remedy)


def order_of(row: RowMapping) -> GangTrace:
    """What the gang is told."""
    return GangTrace(row["id"], row["steps"])


async def keep(tx: AsyncConnection, job_id: str, event: TraceEvent) -> None:
    """Store what a rank tells of a step, where its trace is open. Call only with the job's row locked.

    Raises ValueError for a number that is not finite or out of range, or an unknown action; then nothing is stored.
    """
    row = await rows.get(tx, job_id, event.id) if _ID.fullmatch(event.id) else None
    if row is not None and row["settled_at"] is None:
        await rows.keep(tx, {"job_id": job_id, "trace_id": row["id"], **trace_spans.columns(event)})


async def settle(tx: AsyncConnection, job_id: str, event: TraceFinishedEvent, ts: float) -> TraceFinishedEvent | None:
    """The gang's event as it is stored, or None if the trace was settled before. Call only with the job's row locked."""
    first, last = event.steps or (None, None)
    outcome = {
        "state": "done" if event.done else "failed",
        "message": event.message or None,
        "first_step": first,
        "last_step": last,
    }
    row = await rows.settle(tx, job_id, event.id, ts, outcome)
    return None if row is None else _event(row)


async def miss_all(tx: AsyncConnection, job_id: str, attempt: int, actor: str, now: float) -> None:
    """The attempt ends: what is not recorded by now will not be. Call only with the job's row locked."""
    outcome = {"state": "failed", "message": "the attempt ended before all steps were told"}
    missed = [_event(row) for row in await rows.settle_all(tx, job_id, now, outcome)]
    same = {"attempt": attempt, "kind": TraceFinishedEvent.kind, "ts": now, "actor": actor}
    await events.append(tx, job_id, [{**same, "data": to_json(event)} for event in missed])


def _event(row: RowMapping) -> TraceFinishedEvent:
    return TraceFinishedEvent(
        id=row["id"],
        done=row["state"] == "done",
        message=row["message"],
        steps=None if row["first_step"] is None else (row["first_step"], row["last_step"]),
        asked_by=row["actor"],
        asked_at=row["asked_at"],
    )


async def traces(store: Store, job: str, *, before: str | None = None, limit: int = 20) -> Traces:
    """Traces of a job (id or name) that were asked for before the trace `before`, newest first. Raises JobNotFound, InvalidCursor."""
    if before is not None and _ID.fullmatch(before) is None:
        remedy = "Use `next` of the page before."
        raise InvalidCursor(f"{before[:80]!r} is not a trace.", field="before", remedy=remedy)
    async with store.read() as tx:
        found = await existing(tx, job)
        page = await rows.before(tx, found["id"], before, limit + 1)
        items = [await _record(tx, found, row) for row in page[:limit]]
    return Traces(items=items, next=items[-1].id if len(page) > limit else None)


async def one(tx: AsyncConnection, job: str, trace: str) -> tuple[Trace, int]:
    """A job's trace, and of how many ranks the job is. Raises JobNotFound, TraceNotFound."""
    found = await existing(tx, job)
    row = await rows.get(tx, found["id"], trace) if _ID.fullmatch(trace) else None
    if row is None:
        remedy = f"A job keeps its newest {KEPT}; see which there are with: shardyard trace JOB --list"
        raise TraceNotFound(f"{found['id']} has no trace {trace[:80]!r}.", field="trace", remedy=remedy)
    return await _record(tx, found, row), found["world_size"]


async def _record(tx: AsyncConnection, job: RowMapping, row: RowMapping) -> Trace:
    parts = await rows.count(tx, row["job_id"], row["id"])
    return Trace(
        id=row["id"],
        job=row["job_id"],
        attempt=row["attempt"],
        steps=row["steps"],
        state=row["state"],
        message=row["message"],
        first_step=row["first_step"],
        last_step=row["last_step"],
        parts=parts,
        parts_wanted=row["steps"] * min(job["world_size"], TRACED_RANKS),
        actor=row["actor"],
        asked_at=row["asked_at"],
        settled_at=row["settled_at"],
    )
