"""SQL of the table `attempts`. `cursor` is the number of the gang's last event that is stored."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from .tables import attempts


async def insert(tx: AsyncConnection, values: Mapping[str, Any]) -> None:
    await tx.execute(attempts.insert().values(values))


async def get(tx: AsyncConnection, job_id: str, number: int) -> RowMapping | None:
    statement = select(attempts).where(attempts.c.job_id == job_id, attempts.c.number == number)
    return (await tx.execute(statement)).mappings().first()


async def advance(tx: AsyncConnection, job_id: str, number: int, cursor: int) -> None:
    """Call only with the job's row locked."""
    statement = update(attempts).where(attempts.c.job_id == job_id, attempts.c.number == number)
    await tx.execute(statement.values(cursor=cursor))


async def end(
    tx: AsyncConnection, job_id: str, number: int, outcome: str, now: float, error: str | None = None
) -> None:
    """End an attempt. `error`: the fingerprint of the exception that ended it."""
    statement = update(attempts).where(
        attempts.c.job_id == job_id, attempts.c.number == number, attempts.c.ended_at.is_(None)
    )
    await tx.execute(statement.values(outcome=outcome, ended_at=now, error=error))


async def ended_by(tx: AsyncConnection, job_id: str, error: str) -> int | None:
    """The number of the job's last attempt that an exception with this fingerprint ended, or None."""
    statement = select(func.max(attempts.c.number)).where(attempts.c.job_id == job_id, attempts.c.error == error)
    number: int | None = (await tx.execute(statement)).scalar_one()
    return number
