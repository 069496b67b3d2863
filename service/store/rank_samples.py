"""SQL of the table `rank_samples`: one row per sample, its lists by rank packed; a job keeps at most `MOST` of them.

If a job has more, its older half is thinned out evenly: the newest `MOST` / 2 keep their distance in time, those before them become
sparser as the job grows older, and the first stays.
"""

import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import delete, func, select
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from .jobs import take_positions
from .tables import rank_samples

MOST: Final = 2000
#: The number of samples that are left then, so that thinning is not needed for every sample.
ROOM: Final = 1800


async def append(tx: AsyncConnection, job_id: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Store samples (attempt, step, ts, world_size, packed). Call only with the job's row locked."""
    if not rows:
        return
    first = await take_positions(tx, job_id, "rank_pos", len(rows)) + 1
    numbered = [{**row, "job_id": job_id, "position": first + i} for i, row in enumerate(rows)]
    await tx.execute(rank_samples.insert(), numbered)
    while (count := await _count(tx, job_id)) > MOST:
        await _thin(tx, job_id, count - ROOM)


async def _count(tx: AsyncConnection, job_id: str) -> int:
    mine = rank_samples.c.job_id == job_id
    return int((await tx.execute(select(func.count()).select_from(rank_samples).where(mine))).scalar_one())


async def _thin(tx: AsyncConnection, job_id: str, excess: int) -> None:
    """Delete `excess` samples of the older half: first every second one, then every second of the rest, and so on."""
    mine, order = rank_samples.c.job_id == job_id, rank_samples.c.position
    older = (await tx.execute(select(order).where(mine).order_by(order).limit(MOST // 2))).scalars().all()
    doomed = sorted(older[1:], key=lambda position: (position - 1) & -(position - 1))[:excess]
    await tx.execute(delete(rank_samples).where(mine, order.in_(doomed)))


async def before(tx: AsyncConnection, job_id: str, position: int | None, limit: int) -> Sequence[RowMapping]:
    """Samples before a position, the newest first."""
    statement = select(rank_samples).where(rank_samples.c.job_id == job_id)
    if position is not None:
        statement = statement.where(rank_samples.c.position < position)
    return (await tx.execute(statement.order_by(rank_samples.c.position.desc()).limit(limit))).mappings().all()


async def span(tx: AsyncConnection, job_id: str) -> tuple[int, int] | None:
    """The first and the last position, or None."""
    ends = select(func.min(rank_samples.c.position), func.max(rank_samples.c.position))
    first, last = (await tx.execute(ends.where(rank_samples.c.job_id == job_id))).one()
    return None if first is None else (int(first), int(last))


def pack(lists: Mapping[str, Any]) -> bytes:
    """Plain JSON, a third of its size."""
    return zlib.compress(json.dumps(lists, separators=(",", ":"), allow_nan=False).encode())


def unpack(packed: bytes) -> dict[str, Any]:
    lists: dict[str, Any] = json.loads(zlib.decompress(packed))
    return lists
