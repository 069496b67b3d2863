"""SQL of the tables `sweeps` and `trials`.

A dispatcher advances a sweep under a lease: changes are stored only with the lease's token.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import and_, case, func, or_, select, update
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from .dialect import insert, unix_now
from .program_tables import metric_series
from .sweep_tables import sweeps, trials
from .tables import attempts, jobs

_OPEN = sweeps.c.finished_at.is_(None)


async def create(tx: AsyncConnection, values: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> bool:
    """Store a sweep and its trials. False: a sweep with this idempotency key is there already, and nothing is stored."""
    statement = insert(tx, sweeps).values(values).on_conflict_do_nothing(index_elements=["idempotency_key"])
    if (await tx.execute(statement.returning(sweeps.c.id))).first() is None:
        return False
    await tx.execute(trials.insert(), [{"sweep_id": values["id"], "rungs": [], **row} for row in rows])
    return True


async def by_id(tx: AsyncConnection, sweep_id: str) -> RowMapping | None:
    return (await tx.execute(select(sweeps).where(sweeps.c.id == sweep_id))).mappings().first()


async def newest_named(tx: AsyncConnection, name: str) -> RowMapping | None:
    statement = select(sweeps).where(sweeps.c.name == name).order_by(sweeps.c.id.desc()).limit(1)
    return (await tx.execute(statement)).mappings().first()


async def by_key(tx: AsyncConnection, key: str) -> RowMapping | None:
    return (await tx.execute(select(sweeps).where(sweeps.c.idempotency_key == key))).mappings().first()


async def page(tx: AsyncConnection, before: str | None, limit: int) -> Sequence[RowMapping]:
    """At most `limit` sweeps, newest first, that are older than the id `before`."""
    statement = select(sweeps).order_by(sweeps.c.id.desc()).limit(limit)
    if before is not None:
        statement = statement.where(sweeps.c.id < before)
    return (await tx.execute(statement)).mappings().all()


async def cancel(tx: AsyncConnection, sweep_id: str) -> bool:
    """Ask a running sweep to end. False: it is not running."""
    statement = update(sweeps).where(sweeps.c.id == sweep_id, sweeps.c.state == "running").values(state="cancelling")
    return (await tx.execute(statement.returning(sweeps.c.id))).first() is not None


# Leases


async def to_advance(tx: AsyncConnection, token: str, limit: int, after: str = "") -> Sequence[RowMapping]:
    """Open sweeps after this id that this token holds or may take, oldest first; `held`: it holds them for a while."""
    mine = sweeps.c.lease_token == token
    held = and_(mine, sweeps.c.free_at > unix_now(tx)).label("held")
    statement = select(*sweeps.c, held).where(_OPEN, sweeps.c.id > after, or_(mine, sweeps.c.free_at <= unix_now(tx)))
    return (await tx.execute(statement.order_by(sweeps.c.id).limit(limit))).mappings().all()


async def take(tx: AsyncConnection, sweep_id: str, token: str, seconds: float) -> bool:
    """Compare-and-set: take the lease, or prolong it. False: another dispatcher holds it."""
    free = or_(sweeps.c.lease_token == token, sweeps.c.free_at <= unix_now(tx))
    statement = update(sweeps).where(sweeps.c.id == sweep_id, _OPEN, free)
    taken = statement.values(lease_token=token, free_at=unix_now(tx) + seconds).returning(sweeps.c.id)
    return (await tx.execute(taken)).first() is not None


async def release(tx: AsyncConnection, token: str) -> None:
    """Let others take the sweeps of this token at once."""
    await tx.execute(update(sweeps).where(_OPEN, sweeps.c.lease_token == token).values(lease_token=None, free_at=0))


async def lock(tx: AsyncConnection, sweep_id: str, token: str) -> RowMapping | None:
    """The sweep, locked until the transaction's end, if the lease still holds."""
    statement = select(sweeps).where(sweeps.c.id == sweep_id, sweeps.c.lease_token == token, _OPEN).with_for_update()
    return (await tx.execute(statement)).mappings().first()


async def settle(tx: AsyncConnection, sweep_id: str, token: str, state: str, message: str | None, now: float) -> None:
    statement = update(sweeps).where(sweeps.c.id == sweep_id, sweeps.c.lease_token == token, _OPEN)
    await tx.execute(statement.values(state=state, message=message, finished_at=now, lease_token=None))


# Trials


async def busy(tx: AsyncConnection, sweep_id: str, metric: str) -> Sequence[RowMapping]:
    """The trials that are active, or have something due, with their jobs' states, steps, and the newest step and value of the metric."""
    series = and_(metric_series.c.job_id == trials.c.job_id, metric_series.c.name == metric)
    of_job = (
        jobs.c.state.label("job_state"),
        jobs.c.message.label("job_message"),
        jobs.c.step.label("job_step"),
        jobs.c.summary,
    )
    of_metric = (metric_series.c.last_step.label("metric_step"), metric_series.c.last.label("metric_last"))
    found = trials.outerjoin(jobs, jobs.c.id == trials.c.job_id).outerjoin(metric_series, series)
    statement = select(*trials.c, *of_job, *of_metric).select_from(found)
    wanted = statement.where(
        trials.c.sweep_id == sweep_id, or_(trials.c.standing == "active", trials.c.due.is_not(None))
    )
    return (await tx.execute(wanted.order_by(trials.c.number))).mappings().all()


async def all_of(tx: AsyncConnection, sweep_id: str) -> Sequence[RowMapping]:
    """All trials, by number."""
    statement = select(trials).where(trials.c.sweep_id == sweep_id).order_by(trials.c.number)
    return (await tx.execute(statement)).mappings().all()


async def with_jobs(tx: AsyncConnection, sweep_id: str, metric: str) -> Sequence[RowMapping]:
    """All trials, by number, with the state and newest step of their jobs, and the newest step of the metric."""
    series = and_(metric_series.c.job_id == trials.c.job_id, metric_series.c.name == metric)
    found = trials.outerjoin(jobs, jobs.c.id == trials.c.job_id).outerjoin(metric_series, series)
    columns = (jobs.c.state.label("job_state"), func.coalesce(jobs.c.step, metric_series.c.last_step).label("step"))
    statement = select(*trials.c, *columns).select_from(found).where(trials.c.sweep_id == sweep_id)
    return (await tx.execute(statement.order_by(trials.c.number))).mappings().all()


async def best(tx: AsyncConnection, sweep_id: str, lowest: bool) -> RowMapping | None:
    """The best of the trials that ran to their end; without such, of those that reached the highest rung. With its job's state and step."""
    done = case((trials.c.standing == "done", 1), else_=0)
    order = (
        done.desc(),
        func.json_array_length(trials.c.rungs).desc(),
        trials.c.value if lowest else trials.c.value.desc(),
    )
    statement = select(*trials.c, jobs.c.state.label("job_state"), jobs.c.step)
    found = statement.select_from(trials.outerjoin(jobs, jobs.c.id == trials.c.job_id))
    wanted = (
        found.where(trials.c.sweep_id == sweep_id, trials.c.value.is_not(None))
        .order_by(*order, trials.c.number)
        .limit(1)
    )
    return (await tx.execute(wanted)).mappings().first()


async def change(tx: AsyncConnection, sweep_id: str, number: int, values: Mapping[str, Any]) -> None:
    await tx.execute(update(trials).where(trials.c.sweep_id == sweep_id, trials.c.number == number).values(values))


async def counts(tx: AsyncConnection, sweep_ids: Sequence[str]) -> dict[str, dict[tuple[str, str | None], int]]:
    """Sweep → standing and outcome → number of trials."""
    statement = select(trials.c.sweep_id, trials.c.standing, trials.c.outcome, func.count().label("count"))
    grouped = statement.where(trials.c.sweep_id.in_(sweep_ids)).group_by(*statement.selected_columns[:3])
    found: dict[str, dict[tuple[str, str | None], int]] = {}
    for row in await tx.execute(grouped):
        found.setdefault(row.sweep_id, {})[row.standing, row.outcome] = int(row[3])
    return found


async def device_seconds(tx: AsyncConnection, sweep_ids: Sequence[str], now: float) -> dict[tuple[str, int], float]:
    """Sweep and trial → device-seconds of all attempts of its job, up to `now` for one that has not ended."""
    spent = (func.coalesce(attempts.c.ended_at, now) - attempts.c.started_at) * func.coalesce(attempts.c.devices, 1)
    statement = select(trials.c.sweep_id, trials.c.number, func.sum(spent).label("spent"))
    joined = statement.select_from(trials.join(attempts, attempts.c.job_id == trials.c.job_id))
    grouped = joined.where(trials.c.sweep_id.in_(sweep_ids)).group_by(trials.c.sweep_id, trials.c.number)
    return {(row.sweep_id, row.number): float(row.spent) for row in await tx.execute(grouped)}
