"""Loss sparklines of many jobs."""

from collections.abc import Sequence

from ..schemas.sparkline import LossSparkline, LossSparklines
from ..store import sparklines
from ..store.engine import Store


async def of_jobs(store: Store, job_ids: Sequence[str]) -> LossSparklines:
    """The sparklines of those jobs (ids) that have at least one step, in the order of the ids."""
    known = [job_id for job_id in job_ids if "\0" not in job_id]
    async with store.read() as tx:
        rows = {row["job_id"]: row for row in await sparklines.of_jobs(tx, known)}
    found = [rows[job_id] for job_id in dict.fromkeys(known) if job_id in rows]
    items = [LossSparkline(job=row["job_id"], width=row["width"], low=row["low"], high=row["high"]) for row in found]
    return LossSparklines(items=items)
