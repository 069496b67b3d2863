"""Reads the text that a job was submitted with."""

from ..schemas.submitted_spec import SubmittedSpec
from ..store import submitted_specs as rows
from ..store.engine import Store
from .jobs import existing


async def submitted_spec(store: Store, job: str) -> SubmittedSpec:
    """The text of the job of this id or name. Raises JobNotFound, JobDeleted."""
    async with store.read() as tx:
        job_id = (await existing(tx, job))["id"]
        row = await rows.of_job(tx, job_id)
    if row is None:
        return SubmittedSpec(job=job_id)
    return SubmittedSpec(job=job_id, format=row["format"], text=row["text"], layout_changed=row["layout_changed"])
