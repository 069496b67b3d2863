"""SQL of the table `submitted_specs`: at most one text of each job."""

from sqlalchemy import select, update
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from .spec_tables import submitted_specs


async def insert(tx: AsyncConnection, job_id: str, form: str, text: str) -> None:
    """Store the text of a job that is inserted in the same transaction."""
    await tx.execute(submitted_specs.insert().values(job_id=job_id, format=form, text=text))


async def of_job(tx: AsyncConnection, job_id: str) -> RowMapping | None:
    found = await tx.execute(select(submitted_specs).where(submitted_specs.c.job_id == job_id))
    return found.mappings().first()


async def note_layout(tx: AsyncConnection, job_id: str) -> None:
    """Note that the job has another layout than its text."""
    await tx.execute(update(submitted_specs).where(submitted_specs.c.job_id == job_id).values(layout_changed=True))
