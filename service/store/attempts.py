"""SQL of the table `attempts`. `cursor` is the number of the gang's last event that is stored."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, case, distinct, func, literal, select, tuple_, update
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ..states import HOLDING
from . import clusters
from .cluster_tables import removed_attempts
from .tables import attempts, jobs

#: Users, each with a kind of device, in one answer.
_MOST_ACTORS = 200
#: The columns of `removed_attempts` that have what `device_time` reads of others.
_OF_REMOVED = ("actor", "job", "device", "started_at", "devices", "ended_at")
#: Devices of an attempt, spares included; attempts that earlier versions placed do not have their number.
DEVICES = func.coalesce(attempts.c.devices, jobs.c.world_size)


async def insert(tx: AsyncConnection, values: Mapping[str, Any]) -> None:
    await tx.execute(attempts.insert().values(values))


async def get(tx: AsyncConnection, job_id: str, number: int) -> RowMapping | None:
    """All of an attempt but its `nodes`, which may be thousands."""
    columns = (column for column in attempts.c if column is not attempts.c.nodes)
    statement = select(*columns).where(attempts.c.job_id == job_id, attempts.c.number == number)
    return (await tx.execute(statement)).mappings().first()


async def nodes(tx: AsyncConnection, job_id: str, number: int) -> list[str]:
    """The ids of the cluster's living nodes when the attempt was placed; none once it has ended."""
    statement = select(attempts.c.nodes).where(attempts.c.job_id == job_id, attempts.c.number == number)
    return list((await tx.execute(statement)).scalar_one_or_none() or ())


def world_size(attempt: RowMapping | None, job: RowMapping) -> int:
    """An attempt's number of ranks: its job may have been given another layout since. Earlier versions did not store it."""
    if attempt is None or attempt["devices"] is None:
        return int(job["world_size"])
    return int(attempt["devices"] - job["spec"].get("policy", {}).get("spares", 0))


async def advance(tx: AsyncConnection, job_id: str, number: int, cursor: int) -> None:
    """Call only with the job's row locked."""
    statement = update(attempts).where(attempts.c.job_id == job_id, attempts.c.number == number)
    await tx.execute(statement.values(cursor=cursor))


async def end(
    tx: AsyncConnection, job_id: str, number: int, outcome: str, now: float, error: str | None = None
) -> None:
    """End an attempt. `error`: the fingerprint of the exception that ended it. Call only with the job's row locked."""
    statement = update(attempts).where(
        attempts.c.job_id == job_id, attempts.c.number == number, attempts.c.ended_at.is_(None)
    )
    # Only the end of a lost gang is compared with the nodes, and of a large cluster they take tens of kilobytes.
    await tx.execute(statement.values(outcome=outcome, ended_at=now, error=error, nodes=[]))
    whole = func.sum((attempts.c.ended_at - attempts.c.started_at) * DEVICES)
    spent = select(whole).where(attempts.c.job_id == jobs.c.id, attempts.c.ended_at.is_not(None))
    await tx.execute(update(jobs).where(jobs.c.id == job_id).values(device_s=spent.scalar_subquery()))


async def held_s(tx: AsyncConnection, job_id: str, now: float) -> float:
    """Seconds of all attempts of a job, each from its placement to its end, or to `now`."""
    spent = func.sum(func.coalesce(attempts.c.ended_at, now) - attempts.c.started_at)
    return float((await tx.execute(select(spent).where(attempts.c.job_id == job_id))).scalar_one() or 0.0)


async def ended_by(tx: AsyncConnection, job_id: str, error: str) -> int | None:
    """The number of the job's last attempt that an exception with this fingerprint ended, or None."""
    statement = select(func.max(attempts.c.number)).where(attempts.c.job_id == job_id, attempts.c.error == error)
    number: int | None = (await tx.execute(statement)).scalar_one()
    return number


def spent(at: float, gone: Mapping[str, float]) -> ColumnElement[float]:
    """Device-seconds of an attempt up to a time; negative if it began later. For a statement that reads `attempts` and `jobs`.

    `gone`: see `clusters.gone`. What had not ended there ended when the cluster went.
    """
    until = case((attempts.c.ended_at <= at, attempts.c.ended_at), else_=_last(at, gone))
    return (until - attempts.c.started_at) * DEVICES


def _last(at: float, gone: Mapping[str, float]) -> ColumnElement[float]:
    """The time up to which an attempt that has not ended counts."""
    return case(gone, value=attempts.c.cluster, else_=at) if gone else literal(at)


async def device_seconds(tx: AsyncConnection, job_ids: Sequence[str], now: float) -> dict[str, float]:
    """Job → device-seconds of all its attempts, up to `now` for one that has not ended. Jobs without an attempt are left out."""
    of_each = func.sum(spent(now, await clusters.gone(tx))).label("spent")
    statement = select(attempts.c.job_id, of_each).join(jobs, jobs.c.id == attempts.c.job_id)
    grouped = statement.where(attempts.c.job_id.in_(job_ids)).group_by(attempts.c.job_id)
    return {row.job_id: float(row.spent) for row in await tx.execute(grouped)}


def ended(since: float, before: tuple[float, str, int] | None, limit: int) -> Select[*tuple[Any, ...]]:
    """Attempts of all jobs that ended since a time, with their jobs, the last to end first."""
    key = (attempts.c.ended_at, attempts.c.job_id, attempts.c.number)
    statement = (
        select(
            *(attempts.c[name] for name in ("job_id", "number", "device", "started_at", "ended_at", "outcome")),
            *(jobs.c[name] for name in ("name", "actor", "state")),
            DEVICES.label("devices"),
        )
        .join(jobs, jobs.c.id == attempts.c.job_id)
        .where(attempts.c.ended_at >= since)
    )
    if before is not None:
        statement = statement.where(tuple_(*key) < tuple_(*before))
    return statement.order_by(*(column.desc() for column in key)).limit(limit)


def device_time(since: float, now: float, gone: Mapping[str, float]) -> Select[*tuple[Any, ...]]:
    """Actor and kind of device → jobs and device-seconds from `since` to `now` (unix seconds), the most first. `gone`: see `spent`.

    Jobs that were removed count too, for `removed_attempts.KEPT_S`.
    """
    named = (jobs.c.actor, attempts.c.job_id, attempts.c.device, attempts.c.started_at, DEVICES.label("devices"))
    ended = select(*named, attempts.c.ended_at.label("until")).join(jobs, jobs.c.id == attempts.c.job_id)
    newest = and_(attempts.c.job_id == jobs.c.id, attempts.c.number == jobs.c.attempt, attempts.c.ended_at.is_(None))
    last = _last(now, gone)
    running = select(*named, last).join_from(jobs, attempts, newest).where(jobs.c.state.in_(HOLDING), last >= since)
    removed = select(*(removed_attempts.c[name] for name in _OF_REMOVED)).where(removed_attempts.c.ended_at >= since)
    # Apart, so that each part is searched in an index.
    every = ended.where(attempts.c.ended_at >= since).union_all(running, removed).subquery()
    first = case((every.c.started_at > since, every.c.started_at), else_=since)
    taken = func.sum(every.c.devices * case((every.c.until > first, every.c.until - first), else_=0.0))
    seconds = taken.label("seconds")
    statement = select(every.c.actor, every.c.device, func.count(distinct(every.c.job_id)).label("jobs"), seconds)
    order = (seconds.desc(), every.c.actor, every.c.device)
    return statement.group_by(every.c.actor, every.c.device).order_by(*order).limit(_MOST_ACTORS)
