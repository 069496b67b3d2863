"""SQL of the table `faults`. A fault is open until it is settled, which happens once."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.dml import ReturningUpdate

from .tables import faults, jobs


async def insert(tx: AsyncConnection, values: Mapping[str, Any]) -> RowMapping:
    """Call only with the job's row locked."""
    stored: RowMapping = (await tx.execute(faults.insert().values(values).returning(faults))).mappings().one()
    return stored


async def by_key(tx: AsyncConnection, job_id: str, idempotency_key: str) -> RowMapping | None:
    statement = select(faults).where(faults.c.job_id == job_id, faults.c.idempotency_key == idempotency_key)
    return (await tx.execute(statement)).mappings().first()


async def open_of(tx: AsyncConnection, tokens: Collection[str]) -> Sequence[RowMapping]:
    """The open faults of the jobs under these leases, each with its lease's token, oldest first."""
    statement = (
        select(faults, jobs.c.lease_token)
        .join(jobs, jobs.c.id == faults.c.job_id)
        .where(jobs.c.lease_token.in_(list(tokens)), jobs.c.attempt == faults.c.attempt, faults.c.settled_at.is_(None))
        .order_by(faults.c.id)
    )
    return (await tx.execute(statement)).mappings().all()


async def settle(tx: AsyncConnection, job_id: str, fault_id: str, now: float) -> RowMapping | None:
    """The fault, if it was open till now. Call only with the job's row locked."""
    statement = _settled(now).where(faults.c.job_id == job_id, faults.c.id == fault_id)
    return (await tx.execute(statement)).mappings().first()


async def settle_all(tx: AsyncConnection, job_id: str, now: float) -> Sequence[RowMapping]:
    """Those that were open till now. Call only with the job's row locked."""
    return (await tx.execute(_settled(now).where(faults.c.job_id == job_id))).mappings().all()


def _settled(now: float) -> ReturningUpdate[*tuple[Any, ...]]:
    return update(faults).where(faults.c.settled_at.is_(None)).values(settled_at=now).returning(faults)
