"""SQL of the table `log_sizes`: the bytes of each job's log, counted in the transactions that store and remove its lines.

Lines that an earlier version stored are not counted yet: those up to the position `uncounted`. `count_some` counts them from the newest
down, a bounded number in a transaction. All functions are called only with the job's row locked, except those that read.
"""

from math import inf
from typing import Final

from sqlalchemy import case, delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from . import dialect
from .tables import log_sizes as sizes
from .tables import logs

#: Bytes that a line takes beside its text, for its row and its entries in two indexes: about 150 in SQLite and 220 in PostgreSQL.
LINE_BYTES: Final = 200


async def add(tx: AsyncConnection, job_id: str, texts: list[str]) -> None:
    """Count lines that are stored in this transaction."""
    more = sum(len(text.encode()) for text in texts) + LINE_BYTES * len(texts)
    statement = dialect.insert(tx, sizes).values(job_id=job_id, bytes=more, uncounted=0)
    await tx.execute(
        statement.on_conflict_do_update(index_elements=[sizes.c.job_id], set_={"bytes": sizes.c.bytes + more})
    )


async def uncounted(tx: AsyncConnection, job_id: str) -> int:
    """The position up to which a job's lines are not counted; 0: all are."""
    found = (await tx.execute(select(sizes.c.uncounted).where(sizes.c.job_id == job_id))).scalar_one_or_none()
    return found or 0


async def count_some(tx: AsyncConnection, job_id: str, limit: int) -> bool:
    """Count up to `limit` of the newest lines that are not counted. Returns whether some are left."""
    size = (dialect.octets(tx, logs.c.text) + LINE_BYTES).label("size")
    mine = (logs.c.job_id == job_id, logs.c.position <= await uncounted(tx, job_id))
    some = select(logs.c.position, size).where(*mine).order_by(logs.c.position.desc()).limit(limit).subquery()
    lowest, count, total = (
        await tx.execute(select(func.min(some.c.position), func.count(), func.sum(some.c.size)))
    ).one()
    left = lowest - 1 if count == limit else 0
    counted = {"bytes": sizes.c.bytes + int(total or 0), "uncounted": left}
    await tx.execute(update(sizes).where(sizes.c.job_id == job_id).values(counted))
    return bool(left)


async def remove_oldest(tx: AsyncConnection, job_id: str, limit: int, excess: float = inf) -> bool:
    """Delete a job's oldest lines: `limit`, or as few as take `excess` bytes. Returns whether more may have to go."""
    size = dialect.octets(tx, logs.c.text) + LINE_BYTES
    oldest = select(logs.c.position, size).where(logs.c.job_id == job_id).order_by(logs.c.position).limit(limit)
    found = (await tx.execute(oldest)).all()
    first_counted = await uncounted(tx, job_id) + 1
    gone, freed, last = 0, 0, 0
    for position, taken in found:
        if freed >= excess:
            break
        gone, last = gone + 1, position
        freed += taken if position >= first_counted else 0
    if gone:
        await tx.execute(delete(logs).where(logs.c.job_id == job_id, logs.c.position <= last))
    emptied = gone == len(found) < limit
    # A process of an earlier version that still runs after a migration stores lines without counting them.
    rest = case((sizes.c.bytes > freed, sizes.c.bytes - freed), else_=0)
    left = {"bytes": 0, "uncounted": 0} if emptied else {"bytes": rest}
    await tx.execute(update(sizes).where(sizes.c.job_id == job_id).values(left))
    return gone == limit
