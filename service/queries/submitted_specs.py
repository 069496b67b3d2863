"""Reads the text that a job was submitted with."""

from ..schemas.submitted_spec import SubmittedSpec
from ..store import submitted_specs as rows
from ..store.engine import Store
from .jobs import existing


async def submitted_spec(store: Store, job: str) -> SubmittedSpec:
    """The text of the job of this id or name. Raises JobNotFound, JobDeleted."""
    async with store.read() as tx:
        found = await existing(tx, job)
        row = await rows.of_job(tx, found["id"])
    same = {"job": found["id"], "resume": found["resume"]}
    if row is None:
        return SubmittedSpec(**same)
    return SubmittedSpec(**same, format=row["format"], text=row["text"], layout_changed=row["layout_changed"])
