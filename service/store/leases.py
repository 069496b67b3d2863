"""SQL of leases, which are columns of `jobs`: the token of the dispatcher that manages the job, and when it expires.

`service/dispatch/lease_renewal.py` renews them.
Results that a dispatcher got outside a transaction are stored only if its token is still in the row.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from sqlalchemy import ColumnElement, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from ..ids import CLUSTER
from ..states import HOLDING, State
from .dialect import unix_now
from .jobs import unleased
from .tables import jobs


@dataclass(frozen=True)
class Lease:
    job_id: str
    token: str
    owner: str


async def take(
    tx: AsyncConnection,
    lease: Lease,
    seconds: float,
    states: Collection[State] = frozenset(State),
    event_pos: int | None = None,
) -> bool:
    """Compare-and-set: only if no dispatcher holds the job, or its lease has expired, and it is in one of `states`.

    `event_pos`: and only if this is the position of the job's newest event, so that nothing has happened to it since.
    """
    expected: list[ColumnElement[bool]] = [jobs.c.state.in_(states)]
    if event_pos is not None:
        expected.append(jobs.c.event_pos == event_pos)
    statement = (
        update(jobs)
        .where(jobs.c.id == lease.job_id, unleased(tx), *expected)
        .values(lease_owner=lease.owner, lease_token=lease.token, lease_until=unix_now(tx) + seconds)
        .returning(jobs.c.id)
    )
    return (await tx.execute(statement)).first() is not None


async def renew(tx: AsyncConnection, tokens: Iterable[str], seconds: float, *, skip_locked: bool = False) -> set[str]:
    """Extend these leases; returns those that are still in force.

    `skip_locked`: rows that another transaction has locked are left out instead of waited for.
    """
    mine = jobs.c.lease_token.in_(list(tokens))
    if skip_locked:
        mine = jobs.c.id.in_(select(jobs.c.id).where(mine).with_for_update(skip_locked=True))
    statement = update(jobs).where(mine).values(lease_until=unix_now(tx) + seconds)
    return {row.lease_token for row in await tx.execute(statement.returning(jobs.c.lease_token))}


async def release(tx: AsyncConnection, tokens: Iterable[str]) -> None:
    statement = update(jobs).where(jobs.c.lease_token.in_(list(tokens)))
    await tx.execute(statement.values(lease_owner=None, lease_token=None, lease_until=None))


async def owners(tx: AsyncConnection) -> list[str]:
    """The dispatchers that hold a lease."""
    statement = select(jobs.c.lease_owner).where(jobs.c.lease_token.is_not(None)).distinct()
    return [owner for owner in (await tx.execute(statement)).scalars() if owner is not None]


async def release_all_of(tx: AsyncConnection, owners: Iterable[str]) -> None:
    """Release all leases of dispatchers that end now or are known to be dead."""
    statement = update(jobs).where(jobs.c.lease_token.is_not(None), jobs.c.lease_owner.in_(list(owners)))
    await tx.execute(statement.values(lease_owner=None, lease_token=None, lease_until=None))


async def abandoned(tx: AsyncConnection, limit: int, cluster: str = CLUSTER) -> list[str]:
    """Jobs that may hold devices of the cluster and whose lease is free or expired."""
    here = (jobs.c.state.in_(HOLDING), jobs.c.cluster == cluster)
    statement = select(jobs.c.id).where(*here, unleased(tx)).order_by(jobs.c.id).limit(limit)
    return list((await tx.execute(statement)).scalars())


async def cancelled_elsewhere(tx: AsyncConnection, but: Collection[str], limit: int) -> dict[str, str]:
    """Job → cluster, of jobs that are cancelled on another cluster than these, and whose lease is free or expired."""
    there = (jobs.c.state == State.CANCELLING, jobs.c.cluster.not_in(but))
    statement = select(jobs.c.id, jobs.c.cluster).where(*there, unleased(tx)).order_by(jobs.c.id).limit(limit)
    return {row.id: row.cluster for row in await tx.execute(statement)}


async def ending(tx: AsyncConnection) -> dict[str, State]:
    """Token → state of the leased jobs whose gang must end."""
    to_end = (State.CANCELLING, State.RESHARDING, State.PAUSING, State.STOPPING)
    statement = select(jobs.c.lease_token, jobs.c.state).where(
        jobs.c.state.in_(to_end), jobs.c.lease_token.is_not(None)
    )
    return {row.lease_token: State(row.state) for row in await tx.execute(statement)}
