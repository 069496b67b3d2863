"""What becomes of a job whose attempt ended without the job's end: the next attempt, or a failure that says why."""

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from .lifecycle import Word, move
from .states import MOVES, State
from .store import attempts

#: A gang's reasons for `failed` that are the machines' fault and not the training code's: worth another attempt.
INFRASTRUCTURE = frozenset({"rank_lost", "node_lost", "gang_lost", "start_failed", "placement_timeout", "gang_error"})

#: Those among them, and of our own, that are the fault of the cluster as a whole: restarts are not used up.
FREE = frozenset({"cluster_lost", "cluster_unreachable", "placement_timeout"})


async def lose_attempt(tx: AsyncConnection, job: RowMapping, word: Word) -> State:
    """Queue the job again, or fail it when `policy.max_restarts` is used up; one that was to be cancelled is cancelled.

    `job` is its row, locked in this transaction under our lease. Returns the job's new state.
    """
    state, token = State(job["state"]), job["lease_token"]
    await attempts.end(tx, job["id"], job["attempt"], word.reason or "lost", word.now)
    if state == State.CANCELLING:
        return await _settle(tx, job, State.CANCELLED, Word(word.actor, word.now, "cancelled_by_user"))
    if word.reason not in FREE and job["restarts"] >= job["max_restarts"]:
        return await _settle(tx, job, State.FAILED, word)
    restarts = {"restarts": job["restarts"] + (word.reason not in FREE), "eta_s": None}
    if State.QUEUED not in MOVES[state]:
        await move(tx, job["id"], state, State.RECOVERING, word, token=token)
        state = State.RECOVERING
    await move(tx, job["id"], state, State.QUEUED, word, token=token, also=restarts)
    return State.QUEUED


async def _settle(tx: AsyncConnection, job: RowMapping, to: State, word: Word) -> State:
    await move(tx, job["id"], State(job["state"]), to, word, token=job["lease_token"])
    return to
