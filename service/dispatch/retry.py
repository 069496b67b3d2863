"""Decides what follows an attempt that ended before its job: the next attempt, or a failure with a reason.

A job that waits for its next attempt is `queued` and holds no devices, no lease and no memory in any process: only `retry_at` in
its row represents the wait.
"""

from dataclasses import replace
from typing import Any, Final

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ..jobs import elastic
from ..jobs.transitions import Cause, move
from ..orders import fault_injection, rank_commands, rank_profiles, step_traces
from ..policies.exception_fingerprint import fingerprint
from ..policies.retry import (
    DEVICES_LOST,
    MACHINES,
    PAUSE,
    RESHARD,
    SECRET_UNAVAILABLE,
    SOURCE_GONE,
    SPEC_UNREADABLE,
    Again,
    Backoff,
    Enough,
    Fault,
    Spent,
    decide,
)
from ..states import MOVES, State
from ..store import attempts, events, steps
from ..store.dialect import unix_now
from . import time_limit

#: State in which the gang was asked to end → reason of that end.
_ON_REQUEST: Final = {State.RESHARDING: RESHARD, State.PAUSING: PAUSE}
#: Ends for which the training code is not to blame.
_NOT_ITS_CODE: Final = MACHINES | {SECRET_UNAVAILABLE, SPEC_UNREADABLE, *SOURCE_GONE}


async def lose_attempt(
    tx: AsyncConnection,
    job: RowMapping,
    cause: Cause,
    backoff: Backoff,
    reached: int = 0,
    ended_at: float | None = None,
) -> State:
    """Queue the job again, or fail it if its budget is used up. A job in `cancelling` is cancelled, one in `pausing` paused.

    `job` is its row, locked in this transaction under our lease; `reached` is a step that is reported but not stored. `ended_at`: the
    unix time of the attempt's end, if that was before the cause's. Returns the job's new state.
    """
    on_request = _ON_REQUEST.get(State(job["state"]))
    if on_request is not None and cause.reason in _NOT_ITS_CODE:  # it was asked to end, however it ended
        cause = replace(cause, reason=on_request, message=job["message"])
    error = await _error(tx, job) if cause.reason == "exception" else None
    earlier = None if error is None else await attempts.ended_by(tx, job["id"], error)
    await fault_injection.settle_all(tx, job, cause)
    await step_traces.settle_all(tx, job, cause)
    await rank_profiles.settle_all(tx, job, cause)
    await rank_commands.settle_all(tx, job, cause)
    ended_at = cause.now if ended_at is None else ended_at
    await attempts.end(tx, job["id"], job["attempt"], cause.reason or "lost", ended_at, error)
    if job["state"] == State.CANCELLING:
        return await _settle(tx, job, State.CANCELLED, replace(cause, reason="cancelled_by_user", message=None))
    if await time_limit.is_up(tx, job, cause.now):
        reason, message = time_limit.MAX_DURATION_EXCEEDED, _said(time_limit.why(job), cause.message)
        return await _settle(tx, job, State.FAILED, replace(cause, reason=reason, message=message))
    furthest = max(job["furthest"], reached, await steps.furthest(tx, job["id"]))
    fault = Fault(cause.reason or "lost", furthest - job["furthest"], earlier)
    verdict = decide(job["id"], _spent(job), fault, backoff)
    if isinstance(verdict, Enough):
        final = replace(cause, reason=verdict.reason, message=_said(verdict.note, cause.message))
        return await _settle(tx, job, State.FAILED, final)
    return await _queue_again(tx, job, cause, verdict, furthest)


async def _queue_again(tx: AsyncConnection, job: RowMapping, cause: Cause, again: Again, furthest: int) -> State:
    state, token = State(job["state"]), job["lease_token"]
    to = State.PAUSED if state == State.PAUSING else State.QUEUED
    if to not in MOVES[state]:
        await move(tx, job["id"], state, State.RECOVERING, cause, token=token)
        state = State.RECOVERING
    also: dict[str, Any] = {
        "restarts": again.spent.restarts,
        "retries": again.spent.retries,
        "setbacks": again.spent.setbacks,
        "furthest": furthest,
        "retry_at": unix_now(tx) + again.wait_s,
        "eta_s": None,
    }
    if job["elastic"]:
        also["elastic_at"] = also["retry_at"] + elastic.patience_s(job, cause.reason == DEVICES_LOST)
    waiting = replace(cause, message=_said(again.note, cause.message))
    await move(tx, job["id"], state, to, waiting, token=token, also=also)
    return to


async def _error(tx: AsyncConnection, job: RowMapping) -> str | None:
    """The fingerprint of the exception that ended this attempt, if it has one."""
    incident = await events.newest(tx, job["id"], "incident")
    if incident is None or incident["attempt"] != job["attempt"] or incident["data"].get("cause") != "exception":
        return None
    return fingerprint(incident["data"])


def _spent(job: RowMapping) -> Spent:
    return Spent(job["restarts"], job["max_restarts"], job["retries"], job["max_retries"], job["setbacks"])


def _said(note: str | None, message: str | None) -> str | None:
    """The note and the message; the note first, because an exception's message may have many lines."""
    if not note or not message:
        return note or message
    return f"{note[:1].upper()}{note[1:]}: {message}"


async def _settle(tx: AsyncConnection, job: RowMapping, to: State, cause: Cause) -> State:
    await move(tx, job["id"], State(job["state"]), to, cause, token=job["lease_token"])
    return to
