"""Changes a job's name, labels and notes, and pins it, in any state. Its stored spec stays as it was submitted."""

from ..queries.jobs import existing, job_of
from ..schemas.job import Job, JobEdit
from ..store import jobs as rows
from ..store.engine import Store


async def edit(store: Store, job_id: str, wanted: JobEdit) -> Job:
    """Store the fields that are given; of two edits the later counts. Harmless if repeated. Raises JobNotFound."""
    async with store.write() as tx:
        row = await existing(tx, job_id)
        await rows.edit(tx, row["id"], wanted.model_dump(exclude_none=True))
        return job_of(await existing(tx, row["id"]))
