"""Pauses and resumes jobs: the gang saves and ends, and the job keeps no device until a user resumes it."""

import time
from typing import Any, Final

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ..errors import JobEnded, JobPausing, StateChanged
from ..queries.jobs import existing, job_of
from ..schemas.job import Job
from ..states import FINAL, State
from ..store.dialect import unix_now
from ..store.engine import Store
from . import elastic
from .transitions import Cause, move

#: States in which a job ends, or has ended.
_ENDING: Final = FINAL | {State.STOPPING, State.CANCELLING}


async def pause(store: Store, job_id: str, actor: str) -> Job:
    """Pause a job, or take it out of the queue. Harmless if repeated. Raises JobNotFound, JobEnded."""
    while True:
        try:
            async with store.write() as tx:
                row = await existing(tx, job_id)
                state = _of_living(row["id"], row["state"])
                if state not in (State.PAUSING, State.PAUSED):
                    to = State.PAUSED if state == State.QUEUED else State.PAUSING
                    await move(tx, row["id"], state, to, Cause(actor, time.time(), "paused_by_user"))
                return job_of(await existing(tx, row["id"]))
        except StateChanged:
            continue  # it moved between our read and our write; each time around something else made progress


async def resume(store: Store, job_id: str, actor: str) -> Job:
    """Queue a paused job again: it continues from its newest checkpoint. Harmless if repeated, and for a job that is not paused.

    Raises JobNotFound, JobEnded, and JobPausing while its gang still saves.
    """
    while True:
        try:
            async with store.write() as tx:
                row = await existing(tx, job_id)
                state = _of_living(row["id"], row["state"])
                if state == State.PAUSING:
                    raise JobPausing(f"{row['id']} is saving.", remedy="Resume it when it is paused.")
                if state == State.PAUSED:
                    await _queue(tx, row, actor)
                return job_of(await existing(tx, row["id"]))
        except StateChanged:
            continue


async def _queue(tx: AsyncConnection, row: RowMapping, actor: str) -> None:
    also: dict[str, Any] = {"retry_at": unix_now(tx), "setbacks": 0}
    if row["elastic"]:
        also["elastic_at"] = also["retry_at"] + elastic.patience_s(row, False)
    await move(tx, row["id"], State.PAUSED, State.QUEUED, Cause(actor, time.time(), "resumed_by_user"), also=also)


def _of_living(job_id: str, state: str) -> State:
    if State(state) in _ENDING:
        raise JobEnded(f"{job_id} is {state}.", remedy="Submit a job with resume_from instead.")
    return State(state)
