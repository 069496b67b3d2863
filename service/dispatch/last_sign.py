"""The last sign of life of a gang that is gone when a dispatcher takes its job over: then its attempt ended.

Between that time and now the cluster may have been off for a night. That time is none on devices.
"""

from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ..store import attempts, events, steps, system_samples


async def last_sign(tx: AsyncConnection, job: RowMapping, now: float) -> float:
    """The time (unix seconds) of what the gang of the job's attempt reported last, between its placement and `now`."""
    attempt = await attempts.get(tx, job["id"], job["attempt"])
    assert attempt is not None
    reported = [await steps.newest(tx, job), await events.newest_by(tx, job["id"], job["attempt"], "gang")]
    signs = [float(row["ts"]) for row in reported if row is not None]
    if (sampled := await system_samples.span_of(tx, job["id"])) is not None:
        signs.append(float(sampled[1]))
    return max(float(attempt["started_at"]), min(now, max(signs, default=0.0)))
