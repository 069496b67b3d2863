"""SQL of the leases of the table `operations`; what it has in common with other orders is `orders.py`.

A dispatcher runs an operation under a lease: only with the lease's token is the end stored. Without a lease, `free_at` is when the
operation may be tried.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, or_, select, update
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.dml import ReturningUpdate

from ..ids import CLUSTER
from .dialect import unix_now
from .leases import Lease
from .tables import jobs, operations

_open = operations.c.settled_at.is_(None)


async def free(tx: AsyncConnection, limit: int, cluster: str = CLUSTER) -> Sequence[RowMapping]:
    """Open operations without a lease, of jobs whose checkpoints the cluster has, oldest first."""
    here = or_(jobs.c.cluster.is_(None), jobs.c.cluster == cluster)
    statement = select(operations).join(jobs).where(_open, _is_free(tx), here).order_by(operations.c.id).limit(limit)
    return (await tx.execute(statement)).mappings().all()


async def elsewhere(tx: AsyncConnection, but: Collection[str], limit: int) -> Sequence[RowMapping]:
    """Operation, job and cluster of open operations without a lease, of jobs of another cluster than these, oldest first."""
    columns = (operations.c.id, operations.c.job_id, jobs.c.cluster)
    statement = select(*columns).join(jobs).where(_open, _is_free(tx), jobs.c.cluster.not_in(but))
    return (await tx.execute(statement.order_by(operations.c.id).limit(limit))).mappings().all()


async def take(tx: AsyncConnection, operation_id: str, lease: Lease, seconds: float, now: float) -> RowMapping | None:
    """Compare-and-set: the operation under this lease, with its job's device; None if another dispatcher was faster."""
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


async def renew(tx: AsyncConnection, tokens: Collection[str], seconds: float, *, skip_locked: bool = False) -> set[str]:
    """Extend these leases; returns those that are still in force. `skip_locked`: as in `leases.renew`."""
    return {row.lease_token for row in await tx.execute(renewal(tx, tokens, seconds, skip_locked))}


def renewal(tx: AsyncConnection, tokens: Collection[str], seconds: float, skip_locked: bool) -> ReturningUpdate[Any]:
    """The statement of `renew`."""
    mine: ColumnElement[bool] = _open & operations.c.lease_token.in_(list(tokens))
    if skip_locked:  # `_open` stays in the outer statement: the index on `id` alone has only the open ones
        mine &= operations.c.id.in_(select(operations.c.id).where(mine).with_for_update(skip_locked=True))
    extended = update(operations).where(mine).values(free_at=unix_now(tx) + seconds)
    return extended.returning(operations.c.lease_token)


async def put_back(tx: AsyncConnection, token: str, seconds: float, tries: int) -> None:
    """Give the lease back: the operation is pending for at least `seconds`, after `tries` tries. Does nothing if the lease is another's."""
    again = {"state": "pending", "started_at": None, "tries": tries, **_held(None, unix_now(tx) + seconds)}
    await tx.execute(update(operations).where(_open, operations.c.lease_token == token).values(again))


async def release_all_of(tx: AsyncConnection, owners: Collection[str]) -> None:
    """Free the operations of dispatchers that end now or are known to be dead."""
    mine = update(operations).where(_open, operations.c.lease_owner.in_(list(owners)))
    await tx.execute(mine.values(_held(None, unix_now(tx))))


async def owners(tx: AsyncConnection) -> list[str]:
    """The dispatchers that hold a lease."""
    statement = select(operations.c.lease_owner).where(_open, operations.c.lease_owner.is_not(None)).distinct()
    return [owner for owner in (await tx.execute(statement)).scalars() if owner is not None]


async def settle(tx: AsyncConnection, token: str, outcome: Mapping[str, Any]) -> bool:
    """Store the end. Returns False if the lease is another's."""
    statement = update(operations).where(_open, operations.c.lease_token == token)
    ended = statement.values(**outcome, lease_owner=None, lease_token=None).returning(operations.c.id)
    return (await tx.execute(ended)).first() is not None


def _is_free(tx: AsyncConnection) -> ColumnElement[bool]:
    return operations.c.free_at <= unix_now(tx)


def _held(lease: Lease | None, until: Any) -> dict[str, Any]:
    owner, token = (None, None) if lease is None else (lease.owner, lease.token)
    return {"lease_owner": owner, "lease_token": token, "free_at": until}
