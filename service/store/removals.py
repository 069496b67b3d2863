"""SQL that removes deleted jobs, and records that are too old: each statement is bounded in rows, and all can be repeated.

A job's row is its tombstone: it is deleted last, so that a removal that was interrupted is found and continued.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, Table, and_, delete, exists, func, or_, select, tuple_, update
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ..states import FINAL
from . import log_sizes, models, removed_attempts
from .dialect import unix_begin, unix_now
from .jobs import unleased
from .program_tables import metric_chunks, metric_series
from .sweep_tables import sweeps, trials
from .system_tables import system_samples
from .tables import (
    METADATA,
    attempts,
    events,
    jobs,
    logs,
    operations,
    rank_samples,
    rollups,
    steps,
    trace_parts,
    traces,
)

#: Rows that one statement deletes, and of tables with large values.
MOST_ROWS: Final = 500
MOST_LARGE_ROWS: Final = 50
_LARGE: Final = frozenset({trace_parts, metric_chunks, rank_samples, system_samples})
_DAY_S: Final = 86_400.0

#: All tables with records of jobs; those that refer to others come first. A trial is a record of its sweep.
OF_JOBS: Final = tuple(
    table for table in reversed(METADATA.sorted_tables) if "job_id" in table.c and table is not trials
)
#: Kind of records → its tables. The sparkline of the loss stays.
KINDS: Final[Mapping[str, tuple[Table, ...]]] = {
    "logs": (logs,),
    "metrics": (steps, rollups, rank_samples, system_samples, metric_chunks, metric_series),
    "events": (events,),
    "traces": (trace_parts, traces),
}
#: Kinds of events that stay with their job: other parts of the service read them, and they are few.
_LASTING: Final = ("state", "checkpoint", "plan", "files")
_USER = jobs.alias("users_of_checkpoints")


async def mark(tx: AsyncConnection, job_id: str, actor: str) -> None:
    """Delete the job, as of now by the database's clock."""
    await tx.execute(update(jobs).where(jobs.c.id == job_id).values(deleted_at=unix_now(tx), deleted_by=actor))


async def living_user(tx: AsyncConnection, job_id: str) -> str | None:
    """A sweep, or else a job, that has not ended and begins with a checkpoint of this job."""
    of_trials = select(sweeps.c.id).where(sweeps.c.parent == job_id, sweeps.c.finished_at.is_(None)).limit(1)
    child = select(jobs.c.id).where(jobs.c.parent == job_id, jobs.c.state.not_in(FINAL)).limit(1)
    found: str | None = (await tx.execute(of_trials)).scalar_one_or_none()
    return (await tx.execute(child)).scalar_one_or_none() if found is None else found


async def mark_old(tx: AsyncConnection, days: float, actor: str, limit: int) -> int:
    """Delete up to `limit` jobs that ended this long ago, unless they are pinned or in use. Returns their number."""
    wanted = (jobs.c.deleted_at.is_(None), *ended(tx), _older(tx, days), _unused())
    some = await _locked(tx, select(jobs.c.id).where(*wanted).order_by(jobs.c.finished_at).limit(limit))
    statement = update(jobs).where(jobs.c.id.in_(some), *wanted).values(deleted_at=unix_now(tx), deleted_by=actor)
    return (await tx.execute(statement)).rowcount


async def begin(tx: AsyncConnection, undelete_s: float, cluster: str, limit: int) -> None:
    """From here on up to `limit` jobs that were deleted this long ago cannot be restored."""
    busy = exists().where(operations.c.job_id == jobs.c.id, operations.c.settled_at.is_(None))
    due = (jobs.c.deleted_at <= unix_begin(tx) - undelete_s, jobs.c.removing.is_(False), jobs.c.pinned.is_(False))
    wanted = (*due, _of_cluster(cluster), unleased(tx), ~busy, _unused())
    some = await _locked(tx, select(jobs.c.id).where(*wanted).order_by(jobs.c.deleted_at).limit(limit))
    await tx.execute(update(jobs).where(jobs.c.id.in_(some), *wanted).values(removing=True))


async def _locked(tx: AsyncConnection, some: Select[str]) -> Sequence[str]:
    """The jobs, locked. On PostgreSQL only the next statement sees what was stored before their locks, such as a version or a child."""
    return (await tx.execute(some.with_for_update(of=jobs, skip_locked=True))).scalars().all()


async def begun(tx: AsyncConnection, cluster: str, after: str, limit: int) -> Sequence[RowMapping]:
    """Jobs (id, spec) whose removal has begun, in the order of their ids, after one."""
    wanted = (jobs.c.deleted_at.is_not(None), jobs.c.removing.is_(True), _of_cluster(cluster), jobs.c.id > after)
    statement = select(jobs.c.id, jobs.c.spec).where(*wanted).order_by(jobs.c.id).limit(limit)
    return (await tx.execute(statement)).mappings().all()


async def remove_rows(tx: AsyncConnection, table: Table, job_id: str) -> bool:
    """Delete some rows of a job whose removal has begun. Returns whether more may be left."""
    return await _remove(tx, table, job_id, jobs.c.removing.is_(True))


async def finish(tx: AsyncConnection, job_id: str) -> None:
    """Delete the job's own row, the last of its rows."""
    await tx.execute(delete(jobs).where(jobs.c.id == job_id, jobs.c.removing.is_(True)))


async def outdated(tx: AsyncConnection, kind: str, days: float, after: str, limit: int) -> Sequence[str]:
    """Ids of jobs after one that still have records of the kind, and ended as long ago as they say, or `days`; 0: never.

    Pinned jobs are left out.
    """
    own = func.coalesce(jobs.c.retention[f"{kind}_days"].as_float(), days)
    due = [and_(jobs.c.retention.is_not(None), own > 0, _older(tx, own))]
    if days > 0:
        due.append(and_(jobs.c.retention.is_(None), _older(tx, days)))
    left = or_(*(exists().where(*_records(table, jobs.c.id)) for table in KINDS[kind]))
    wanted = (*ended(tx), or_(*due), jobs.c.removing.is_(False), jobs.c.id > after, left)
    return (await tx.execute(select(jobs.c.id).where(*wanted).order_by(jobs.c.id).limit(limit))).scalars().all()


async def remove_old(tx: AsyncConnection, table: Table, job_id: str) -> bool:
    """Delete some rows of a job that is not pinned. Returns whether more may be left."""
    return await _remove(tx, table, job_id, jobs.c.pinned.is_(False), lasting=True)


async def remove_old_sweep(tx: AsyncConnection, days: float) -> bool:
    """Delete a sweep that ended this long ago, with its trials, once none of its jobs is left. Returns whether there was one."""
    job_left = exists().where(trials.c.sweep_id == sweeps.c.id, jobs.c.id == trials.c.job_id)
    old = (sweeps.c.finished_at < unix_begin(tx) - days * _DAY_S, ~job_left)
    found = select(sweeps.c.id).where(*old).order_by(sweeps.c.id).limit(1).with_for_update(skip_locked=True)
    sweep_id = (await tx.execute(found)).scalar_one_or_none()
    if sweep_id is None:
        return False
    await tx.execute(delete(trials).where(trials.c.sweep_id == sweep_id))
    await tx.execute(delete(sweeps).where(sweeps.c.id == sweep_id))
    return True


async def _remove(
    tx: AsyncConnection, table: Table, job_id: str, only: ColumnElement[bool], *, lasting: bool = False
) -> bool:
    """The job's row is locked first: so of two dispatchers one waits, and a pin is seen."""
    job = select(jobs.c.id).where(jobs.c.id == job_id, only).with_for_update()
    if (await tx.execute(job)).first() is None:
        return False
    most = MOST_LARGE_ROWS if table in _LARGE else MOST_ROWS
    if table is logs:
        return await log_sizes.remove_oldest(tx, job_id, most)
    key = list(table.primary_key.columns)
    mine = _records(table, job_id) if lasting else [table.c.job_id == job_id]
    some = select(*key).where(*mine).order_by(*key).limit(most).correlate(None)
    gone = (table.c.job_id == job_id, tuple_(*key).in_(some))
    if table is attempts:
        await removed_attempts.keep(tx, gone)
    done = await tx.execute(delete(table).where(*gone))
    return done.rowcount == most


def _records(table: Table, job_id: Any) -> list[ColumnElement[bool]]:
    """The rows of a job that age."""
    lasts = [table.c.kind.not_in(_LASTING)] if table is events else []
    return [table.c.job_id == job_id, *lasts]


def ended(tx: AsyncConnection) -> tuple[ColumnElement[bool], ...]:
    """Jobs that have ended, are not pinned, and that no dispatcher looks after any more."""
    return (jobs.c.state.in_(FINAL), jobs.c.pinned.is_(False), unleased(tx))


def _older(tx: AsyncConnection, days: float | ColumnElement[float]) -> ColumnElement[bool]:
    return jobs.c.finished_at < unix_begin(tx) - days * _DAY_S


def _unused() -> ColumnElement[bool]:
    child = exists().where(_USER.c.parent == jobs.c.id, _USER.c.state.not_in(FINAL))
    of_trials = exists().where(sweeps.c.parent == jobs.c.id, sweeps.c.finished_at.is_(None))
    return and_(~child, ~of_trials, ~models.names(jobs.c.id))


def _of_cluster(cluster: str) -> ColumnElement[bool]:
    """Only a dispatcher of the job's cluster has its storage."""
    return or_(jobs.c.cluster.is_(None), jobs.c.cluster == cluster)
