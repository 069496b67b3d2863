"""SQL of the table `certificates`: at most one of each job."""

from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from .dialect import insert
from .spec_tables import certificates


async def put(tx: AsyncConnection, job_id: str, **columns: Any) -> None:
    """Store a job's certificate, in place of the one that it has."""
    statement = insert(tx, certificates).values(job_id=job_id, **columns)
    await tx.execute(statement.on_conflict_do_update(index_elements=["job_id"], set_=columns))


async def remove(tx: AsyncConnection, job_id: str) -> None:
    """Remove a job's certificate, if it has one."""
    await tx.execute(delete(certificates).where(certificates.c.job_id == job_id))


async def summary(tx: AsyncConnection, job_id: str) -> RowMapping | None:
    """All of it but the document."""
    kept = [column for column in certificates.c if column.name not in ("job_id", "document")]
    found = await tx.execute(select(*kept).where(certificates.c.job_id == job_id))
    return found.mappings().first()


async def document(tx: AsyncConnection, job_id: str) -> str | None:
    found = await tx.execute(select(certificates.c.document).where(certificates.c.job_id == job_id))
    return found.scalar_one_or_none()
