"""The one function that moves a job: compare-and-set on its state, with the audit event in the same transaction."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from ...workers.messages.event import StateEvent, to_json
from ..errors import IllegalMove, LeaseLost, StateChanged
from ..states import FINAL, MOVES, State
from ..store import events, jobs

#: The states of a healthy job in order. A gang that reports a later state has passed the ones before.
_FORWARD = (State.PLACING, State.STARTING, State.RUNNING)


@dataclass(frozen=True)
class Cause:
    """The actor, time (unix seconds) and reason of a move: a stable code and a human-readable message.

    `reported`: when it happened by a node's clock, if a node says so; only the time of the move's event follows it.
    """

    actor: str
    now: float
    reason: str | None = None
    message: str | None = None
    reported: float | None = None

    @property
    def ts(self) -> float:
        """The time of the move's event."""
        return self.now if self.reported is None else self.reported


async def move(
    tx: AsyncConnection,
    job_id: str,
    before: State,
    to: State,
    cause: Cause,
    *,
    token: str | None = None,
    also: dict[str, Any] | None = None,
) -> None:
    """Move the job from `before` to `to`; `also` are further columns that change with it.

    Dispatchers pass their lease's token. Raises IllegalMove when the table has no such move (a bug), LeaseLost when the
    lease is another's or the state is not `before`; StateChanged without a token. Then nothing is changed.
    """
    if to not in MOVES[before]:
        raise IllegalMove(f"{job_id}: there is no move from {before} to {to}.")
    values: dict[str, Any] = {"state": to, "reason": cause.reason, "message": cause.message, **(also or {})}
    if to == State.STARTING:
        values["started_at"] = jobs.once("started_at", cause.now)
    if to in FINAL:
        values |= {"finished_at": cause.now, "duration_s": jobs.elapsed(cause.now), "eta_s": None}
    row = await jobs.change_state(tx, job_id, before, token, values)
    if row is None:
        raise (StateChanged if token is None else LeaseLost)(
            f"{job_id} is no longer {before}, or this dispatcher's lease has expired."
        )
    event = StateEvent(state=to, reason=cause.reason, message=cause.message, attempt=row["attempt"])
    where = {"job_id": job_id, "position": row["event_pos"], "attempt": row["attempt"]}
    await events.insert(tx, {**where, "kind": event.kind, "ts": cause.ts, "actor": cause.actor, "data": to_json(event)})


def route(before: State, to: State) -> list[State]:
    """The moves from `before` to the state `to` that a gang reports; empty if the report is outdated."""
    if to in MOVES[before]:
        return [to]
    if before not in _FORWARD or to == before:
        return []
    passed: list[State] = []
    for state in _FORWARD[_FORWARD.index(before) + 1 :]:
        passed.append(state)
        if to in MOVES[state]:
            return [*passed, to]
    return []
