"""SQL of the table `removed_attempts`: what attempts of removed jobs took of the devices, while a range may reach back to it."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import ColumnElement, delete, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from .attempts import DEVICES
from .cluster_tables import removed_attempts
from .dialect import unix_begin
from .tables import attempts, jobs

#: Seconds for which they are kept: the longest range is a week.
KEPT_S: Final = 8 * 86_400.0
#: Rows that one statement deletes.
_MOST_ROWS: Final = 500


async def keep(tx: AsyncConnection, some: Sequence[ColumnElement[bool]]) -> None:
    """Note attempts that the same transaction deletes, except those that never ended or ended too long ago."""
    names = ("job", "number", "actor", "device", "devices", "started_at", "ended_at")
    values = select(
        *(attempts.c[name] for name in ("job_id", "number")),
        jobs.c.actor,
        attempts.c.device,
        DEVICES,
        *(attempts.c[name] for name in ("started_at", "ended_at")),
    ).join(jobs, jobs.c.id == attempts.c.job_id)
    recent = attempts.c.ended_at >= unix_begin(tx) - KEPT_S
    await tx.execute(removed_attempts.insert().from_select(names, values.where(*some, recent)))


async def remove_old(tx: AsyncConnection) -> bool:
    """Delete some that ended too long ago. Returns whether more may be left."""
    key = (removed_attempts.c.job, removed_attempts.c.number)
    old = select(*key).where(removed_attempts.c.ended_at < unix_begin(tx) - KEPT_S).limit(_MOST_ROWS)
    done = await tx.execute(delete(removed_attempts).where(tuple_(*key).in_(old)))
    return done.rowcount == _MOST_ROWS
