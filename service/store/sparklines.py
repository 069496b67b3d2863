"""SQL of the table `outlines`: one small row per job that reported a step."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from .dialect import insert
from .tables import outlines


async def get(tx: AsyncConnection, job_id: str) -> RowMapping | None:
    return (await tx.execute(select(outlines).where(outlines.c.job_id == job_id))).mappings().first()


async def put(tx: AsyncConnection, job_id: str, values: Mapping[str, Any]) -> None:
    """Store a job's sparkline. Call only with the job's row locked."""
    statement = insert(tx, outlines).values(job_id=job_id, **values)
    await tx.execute(statement.on_conflict_do_update(index_elements=["job_id"], set_=dict(values)))


async def of_jobs(tx: AsyncConnection, job_ids: Sequence[str]) -> Sequence[RowMapping]:
    """The sparklines of those of the jobs that have one, in one query."""
    return (await tx.execute(select(outlines).where(outlines.c.job_id.in_(job_ids)))).mappings().all()
