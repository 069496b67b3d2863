"""What is used of the time for which a job may hold devices (`policy.max_duration`).

All attempts count, each from its placement to its end: time in the queue and paused time do not. The rows of the attempts have both
times, so any dispatcher continues to count.
"""

import time

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from .. import durations
from ..schemas.job import TimeLimit
from ..states import HOLDING
from ..store import attempts


def limit_s(job: RowMapping) -> float | None:
    """Seconds for which the job may hold devices. None without a limit."""
    given = job["spec"].get("policy", {}).get("max_duration")
    return None if given is None else durations.seconds(given)


async def of_job(tx: AsyncConnection, job: RowMapping, now: float | None = None) -> TimeLimit | None:
    """The job's limit and what is used of it, now or at a unix time. None without a limit."""
    if (limit := limit_s(job)) is None:
        return None
    now = time.time() if now is None else now
    used = await attempts.held_s(tx, job["id"], now)
    return TimeLimit(limit_s=limit, used_s=used, ends_at=now + limit - used if job["state"] in HOLDING else None)
