"""SQL that reads the queue, and the jobs that have devices, in pages of keys."""

from collections.abc import Collection
from typing import Any

from sqlalchemy import ScalarSelect, Select, and_, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from ..schemas.queue import MOST_COUNTED
from ..states import HOLDING, State
from .cluster_tables import gang_nodes
from .jobs import SPARES
from .tables import attempts, jobs


def waiting(after: str, limit: int) -> Select[*tuple[Any, ...]]:
    """Waiting jobs after an id, first submitted first."""
    named = (
        "id",
        "name",
        "actor",
        "state",
        "wanted_device",
        "world_size",
        "created_at",
        "attempt",
        "retry_at",
        "reason",
        "message",
    )
    statement = select(
        *(jobs.c[name] for name in named),
        SPARES.label("spares"),
        func.coalesce(_of_newest("ended_at"), jobs.c.created_at).label("since"),
    )
    return statement.where(jobs.c.state == State.QUEUED, jobs.c.id > after).order_by(jobs.c.id).limit(limit)


def _of_newest(column: str) -> ScalarSelect[Any]:
    """A column of the job's newest attempt, read for the rows of the page alone."""
    mine = (attempts.c.job_id == jobs.c.id, attempts.c.number == jobs.c.attempt)
    return select(attempts.c[column]).where(*mine).correlate(jobs).scalar_subquery()


async def count_waiting(tx: AsyncConnection, until: str | None = None) -> int:
    """Number of waiting jobs, counted up to `MOST_COUNTED`; or of all those up to an id, which gives a page its place."""
    waits = select(jobs.c.id).where(jobs.c.state == State.QUEUED)
    counted = waits.order_by(jobs.c.id).limit(MOST_COUNTED) if until is None else waits.where(jobs.c.id <= until)
    return int((await tx.execute(select(func.count()).select_from(counted.subquery()))).scalar_one())


def running(after: str, limit: int) -> Select[*tuple[Any, ...]]:
    """Jobs with devices after an id, first submitted first."""
    statement = select(
        *(jobs.c[name] for name in ("id", "name", "actor", "state", "attempt", "device", "created_at")),
        func.coalesce(_of_newest("devices"), jobs.c.world_size + SPARES).label("devices"),
        func.coalesce(_of_newest("started_at"), jobs.c.created_at).label("since"),
    )
    return statement.where(jobs.c.state.in_(HOLDING), jobs.c.id > after).order_by(jobs.c.id).limit(limit)


async def node_counts(tx: AsyncConnection, job_ids: Collection[str]) -> dict[str, int]:
    """Job → the number of nodes on which its newest attempt has devices."""
    mine = and_(gang_nodes.c.job_id == jobs.c.id, gang_nodes.c.attempt == jobs.c.attempt)
    statement = select(gang_nodes.c.job_id, func.count()).join(jobs, mine)
    statement = statement.where(gang_nodes.c.job_id.in_(job_ids), gang_nodes.c.until.is_(None))
    return {job: int(count) for job, count in await tx.execute(statement.group_by(gang_nodes.c.job_id))}
