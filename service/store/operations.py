"""SQL of the table `operations`. One is open until it is settled, which happens once.

Whoever has one done holds its lease: a token, with which alone its end is stored. While nobody holds it, `free_at` is when it may be tried.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, or_, select, update
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ..ids import CLUSTER
from .dialect import unix_now
from .leases import Lease
from .tables import jobs, operations

_open = operations.c.settled_at.is_(None)


async def insert(tx: AsyncConnection, values: Mapping[str, Any], kept: int) -> RowMapping:
    """Store an operation, and forget those of the job that were settled but the newest `kept`. Call only with the job's row locked."""
    stored: RowMapping = (await tx.execute(operations.insert().values(values).returning(operations))).mappings().one()
    old = and_(operations.c.job_id == values["job_id"], operations.c.settled_at.is_not(None))
    newest = select(operations.c.id).where(old).order_by(operations.c.id.desc()).limit(kept)
    await tx.execute(delete(operations).where(old, operations.c.id.not_in(newest)))
    return stored


async def by_key(tx: AsyncConnection, job_id: str, idempotency_key: str) -> RowMapping | None:
    statement = select(operations).where(operations.c.job_id == job_id, operations.c.idempotency_key == idempotency_key)
    return (await tx.execute(statement)).mappings().first()


async def get(tx: AsyncConnection, job_id: str, operation_id: str) -> RowMapping | None:
    statement = select(operations).where(operations.c.job_id == job_id, operations.c.id == operation_id)
    return (await tx.execute(statement)).mappings().first()


async def before(tx: AsyncConnection, job_id: str, operation_id: str | None, limit: int) -> Sequence[RowMapping]:
    """The newest first, below an id."""
    statement = select(operations).where(operations.c.job_id == job_id)
    if operation_id is not None:
        statement = statement.where(operations.c.id < operation_id)
    return (await tx.execute(statement.order_by(operations.c.id.desc()).limit(limit))).mappings().all()


async def open_of(tx: AsyncConnection, job_id: str) -> Sequence[RowMapping]:
    """Those of a job that wait or run; the service bounds their number."""
    return (await tx.execute(select(operations).where(operations.c.job_id == job_id, _open))).mappings().all()


async def free(tx: AsyncConnection, limit: int, cluster: str = CLUSTER) -> Sequence[RowMapping]:
    """Open ones that nobody holds, of jobs whose checkpoints the cluster has, oldest first."""
    here = or_(jobs.c.cluster.is_(None), jobs.c.cluster == cluster)
    statement = select(operations).join(jobs).where(_open, _is_free(tx), here).order_by(operations.c.id).limit(limit)
    return (await tx.execute(statement)).mappings().all()


async def take(tx: AsyncConnection, operation_id: str, lease: Lease, seconds: float, now: float) -> RowMapping | None:
    """Compare-and-set: the operation as it is now held, with its job's device; None where another was faster."""
    statement = (
        update(operations)
        .where(operations.c.job_id == lease.job_id, operations.c.id == operation_id, _open, _is_free(tx))
        .values(state="running", started_at=now, tries=operations.c.tries + 1, **_held(lease, unix_now(tx) + seconds))
        .returning(operations.c.id)
    )
    if (await tx.execute(statement)).first() is None:
        return None
    held = select(operations, jobs.c.device).join(jobs).where(operations.c.lease_token == lease.token)
    return (await tx.execute(held)).mappings().one()


async def renew(tx: AsyncConnection, tokens: Collection[str], seconds: float) -> set[str]:
    """Prolong these leases; returns those that still hold."""
    statement = update(operations).where(_open, operations.c.lease_token.in_(list(tokens)))
    prolonged = statement.values(free_at=unix_now(tx) + seconds).returning(operations.c.lease_token)
    return {row.lease_token for row in await tx.execute(prolonged)}


async def put_back(tx: AsyncConnection, token: str, seconds: float, tries: int) -> None:
    """It waits again, for so long at least, and has been tried so often. Nothing where the lease is another's."""
    again = {"state": "waiting", "started_at": None, "tries": tries, **_held(None, unix_now(tx) + seconds)}
    await tx.execute(update(operations).where(_open, operations.c.lease_token == token).values(again))


async def release_all_of(tx: AsyncConnection, owners: Collection[str]) -> None:
    """Of dispatchers that are known to be dead."""
    mine = update(operations).where(_open, operations.c.lease_owner.in_(list(owners)))
    await tx.execute(mine.values(_held(None, unix_now(tx))))


async def owners(tx: AsyncConnection) -> list[str]:
    """Whoever holds one."""
    statement = select(operations.c.lease_owner).where(_open, operations.c.lease_owner.is_not(None)).distinct()
    return [owner for owner in (await tx.execute(statement)).scalars() if owner is not None]


async def settle(tx: AsyncConnection, token: str, outcome: Mapping[str, Any]) -> bool:
    """Store the end. False where the lease is another's."""
    statement = update(operations).where(_open, operations.c.lease_token == token)
    ended = statement.values(**outcome, lease_owner=None, lease_token=None).returning(operations.c.id)
    return (await tx.execute(ended)).first() is not None


def _is_free(tx: AsyncConnection) -> ColumnElement[bool]:
    return operations.c.free_at <= unix_now(tx)


def _held(lease: Lease | None, until: Any) -> dict[str, Any]:
    owner, token = (None, None) if lease is None else (lease.owner, lease.token)
    return {"lease_owner": owner, "lease_token": token, "free_at": until}
