"""Stops a job that has held devices for its `policy.max_duration`: its gang saves and ends, as if it were paused, and the job has failed.

Every dispatcher that manages the job counts from the rows of its attempts, so the limit outlives a dispatcher.
"""

import time
from typing import Final

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ..errors import LeaseLost
from ..jobs.transitions import Cause, move
from ..queries import time_limit
from ..states import MOVES, State
from ..store import jobs
from ..store.engine import Store
from ..store.leases import Lease

#: Reason of a job that was stopped because its time is up.
MAX_DURATION_EXCEEDED: Final = "max_duration_exceeded"


async def left_s(store: Store, job: RowMapping) -> float | None:
    """Seconds for which the job may hold devices from now on, 0 or less if its time is up. None without a limit."""
    if time_limit.limit_s(job) is None:
        return None
    async with store.read() as tx:
        found = await time_limit.of_job(tx, job)
    return None if found is None else found.limit_s - found.used_s


async def stop(store: Store, lease: Lease) -> State:
    """Move the job to `stopping`, unless it ends already. Returns its state. Raises LeaseLost."""
    async with store.write() as tx:
        job = await jobs.locked(tx, lease.job_id, lease.token)
        if job is None:
            raise LeaseLost(f"{lease.job_id}: another dispatcher manages it now.")
        state = State(job["state"])
        if State.STOPPING not in MOVES[state]:
            return state
        cause = Cause(lease.owner, time.time(), MAX_DURATION_EXCEEDED, why(job))
        await move(tx, job["id"], state, State.STOPPING, cause, token=lease.token)
        return State.STOPPING


async def is_up(tx: AsyncConnection, job: RowMapping, now: float) -> bool:
    """Whether a job whose attempt has ended, at the unix time `now`, may have no other one."""
    found = await time_limit.of_job(tx, job, now)
    return job["state"] == State.STOPPING or (found is not None and found.used_s >= found.limit_s)


def why(job: RowMapping) -> str:
    """The message of a job that is stopped."""
    return f"stopped after its policy.max_duration of {job['spec']['policy']['max_duration']}"
