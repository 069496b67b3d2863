"""SQL of the tables `sweeps` and `trials`.

A dispatcher advances a sweep under a lease: changes are stored only with the lease's token.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, and_, case, exists, func, or_, select, update
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from . import clusters
from .attempts import spent
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


async def count_open(tx: AsyncConnection) -> int:
    return (await tx.execute(select(func.count()).select_from(sweeps).where(_OPEN))).scalar_one()


async def code_of_open(tx: AsyncConnection) -> set[str]:
    """Digests of the archives of code that trials of open sweeps name, or will name."""
    named: set[str] = set()
    for code, parameters in await tx.execute(select(sweeps.c.spec["code"], sweeps.c.sweep["parameters"]).where(_OPEN)):
        given = ((code or {}).get("archive"), *parameters.get("code.archive", {}).get("values", ()))
        named.update(digest for digest in given if isinstance(digest, str))
    return named


async def cancel(tx: AsyncConnection, sweep_id: str) -> bool:
    """Ask a running sweep to end. False: it is not running."""
    statement = update(sweeps).where(sweeps.c.id == sweep_id, sweeps.c.state == "running").values(state="cancelling")
    return (await tx.execute(statement.returning(sweeps.c.id))).first() is not None


# Leases


async def to_advance(
    tx: AsyncConnection, token: str, limit: int, after: str = "", *, lease_s: float
) -> Sequence[RowMapping]:
    """Open sweeps after this id that this token holds or may take, oldest first; `held`: it holds them for half of `lease_s` or more."""
    mine = sweeps.c.lease_token == token
    held = and_(mine, sweeps.c.free_at > unix_now(tx) + lease_s / 2).label("held")
    statement = select(*sweeps.c, held).where(_OPEN, sweeps.c.id > after, or_(mine, sweeps.c.free_at <= unix_now(tx)))
    return (await tx.execute(statement.order_by(sweeps.c.id).limit(limit))).mappings().all()


async def take(tx: AsyncConnection, sweep_id: str, token: str, seconds: float) -> bool:
    """Compare-and-set: take the lease, or prolong it. False: another dispatcher holds it."""
    free = or_(sweeps.c.lease_token == token, sweeps.c.free_at <= unix_now(tx))
    statement = update(sweeps).where(sweeps.c.id == sweep_id, _OPEN, free)
    taken = statement.values(lease_token=token, free_at=unix_now(tx) + seconds).returning(sweeps.c.id)
    return (await tx.execute(taken)).first() is not None


async def left(tx: AsyncConnection, sweep_id: str, token: str) -> float:
    """Seconds for which this token still holds the lease; 0: it has expired, or is another's."""
    mine = (sweeps.c.id == sweep_id, sweeps.c.lease_token == token)
    found = (await tx.execute(select(sweeps.c.free_at - unix_now(tx)).where(*mine))).scalar_one_or_none()
    return max(0.0, float(found or 0.0))


async def state(tx: AsyncConnection, sweep_id: str) -> str | None:
    """Its state; None if there is no such sweep."""
    return (await tx.execute(select(sweeps.c.state).where(sweeps.c.id == sweep_id))).scalar_one_or_none()


async def prolong(tx: AsyncConnection, sweep_id: str, token: str, seconds: float) -> bool:
    """Compare-and-set: prolong a lease. False: it has expired, or is another's."""
    mine = (sweeps.c.id == sweep_id, sweeps.c.lease_token == token, sweeps.c.free_at > unix_now(tx))
    prolonged = update(sweeps).where(*mine).values(free_at=unix_now(tx) + seconds).returning(sweeps.c.id)
    return (await tx.execute(prolonged)).first() is not None


async def release(tx: AsyncConnection, token: str) -> None:
    """Let others take the sweeps of this token at once."""
    await tx.execute(update(sweeps).where(_OPEN, sweeps.c.lease_token == token).values(lease_token=None, free_at=0))


async def lock(tx: AsyncConnection, sweep_id: str, token: str) -> RowMapping | None:
    """The sweep, locked until the transaction's end, if the lease still holds."""
    statement = select(sweeps).where(sweeps.c.id == sweep_id, sweeps.c.lease_token == token, _OPEN).with_for_update()
    return (await tx.execute(statement)).mappings().first()


async def note(tx: AsyncConnection, sweep_id: str, token: str, message: str | None) -> None:
    """Store what keeps an open sweep from being advanced; None: nothing does."""
    statement = update(sweeps).where(sweeps.c.id == sweep_id, sweeps.c.lease_token == token, _OPEN)
    await tx.execute(statement.values(message=message))


async def settle(tx: AsyncConnection, sweep_id: str, token: str, state: str, message: str | None, now: float) -> None:
    statement = update(sweeps).where(sweeps.c.id == sweep_id, sweeps.c.lease_token == token, _OPEN)
    await tx.execute(statement.values(state=state, message=message, finished_at=now, lease_token=None))


# Trials


async def busy(tx: AsyncConnection, sweep_ids: Sequence[str]) -> Sequence[RowMapping]:
    """Trials that are active, or have something due, by sweep and number.

    And the paused ones whose jobs are not paused any more: they ended while they saved, or a user cancelled or resumed them.
    With the states, steps and sizes of their jobs, and the newest step and value of the metric.
    """
    series = and_(metric_series.c.job_id == trials.c.job_id, metric_series.c.name == _metric())
    of_job = (
        jobs.c.state.label("job_state"),
        jobs.c.message.label("job_message"),
        jobs.c.step.label("job_step"),
        jobs.c.world_size.label("job_world_size"),
        jobs.c.summary,
    )
    of_metric = (metric_series.c.last_step.label("metric_step"), metric_series.c.last.label("metric_last"))
    of_sweep = trials.join(sweeps, sweeps.c.id == trials.c.sweep_id)
    found = of_sweep.outerjoin(jobs, jobs.c.id == trials.c.job_id).outerjoin(metric_series, series)
    statement = select(*trials.c, *of_job, *of_metric).select_from(found)
    due = trials.c.due.is_not(None)
    # By the trial's row alone, so that no job of an ended trial is looked up.
    alive = or_(trials.c.standing.in_(("active", "paused")), due)
    gone = or_(jobs.c.state.is_(None), jobs.c.state.not_in(("paused", "pausing")))
    wanted = statement.where(trials.c.sweep_id.in_(sweep_ids), alive, or_(trials.c.standing != "paused", gone, due))
    return (await tx.execute(wanted.order_by(trials.c.sweep_id, trials.c.number))).mappings().all()


async def all_of(tx: AsyncConnection, sweep_id: str) -> Sequence[RowMapping]:
    """All trials, by number."""
    statement = select(trials).where(trials.c.sweep_id == sweep_id).order_by(trials.c.number)
    return (await tx.execute(statement)).mappings().all()


async def with_jobs(
    tx: AsyncConnection, sweep_id: str, metric: str, since: float | None = None
) -> Sequence[RowMapping]:
    """Trials by number, with the state and newest step of their jobs. `since`: only those that may have changed after it.

    Those are the ones that changed themselves, are active, or whose jobs have held devices since.
    """
    series = and_(metric_series.c.job_id == trials.c.job_id, metric_series.c.name == metric)
    found = trials.outerjoin(jobs, jobs.c.id == trials.c.job_id).outerjoin(metric_series, series)
    statement = select(*trials.c, *_of_job()).select_from(found).where(trials.c.sweep_id == sweep_id)
    if since is not None:
        ran = or_(attempts.c.ended_at.is_(None), attempts.c.ended_at > since)
        held = exists().where(attempts.c.job_id == trials.c.job_id, ran)
        statement = statement.where(or_(trials.c.standing == "active", trials.c.changed_at > since, held))
    return (await tx.execute(statement.order_by(trials.c.number))).mappings().all()


async def best(tx: AsyncConnection, metrics: Mapping[str, str], maximised: Collection[str]) -> Sequence[RowMapping]:
    """Of each sweep, if it has one, the best of the trials that ran to their end; without such, of those that reached the highest rung.

    With the state and newest step of its job. `metrics`: of each sweep what it compares, `maximised`: sweeps whose highest value is best.
    """
    if not metrics:
        return []
    # Nothing of a sweep's own row: SQLite would sort its document, of up to 1 MiB, once per trial.
    is_done = trials.c.standing == "done"
    rungs = case((is_done, 0), else_=func.json_array_length(trials.c.rungs))  # a program may end before the highest
    value = case((trials.c.sweep_id.in_(maximised), -trials.c.value), else_=trials.c.value)
    order = (case((is_done, 0), else_=1), rungs.desc(), value, trials.c.number)
    place = func.row_number().over(partition_by=trials.c.sweep_id, order_by=order).label("place")
    ranked = select(trials.c.sweep_id, trials.c.number, place)
    first = ranked.where(trials.c.sweep_id.in_(metrics), trials.c.value.is_not(None)).subquery()
    metric = case(dict(metrics), value=trials.c.sweep_id)
    series = and_(metric_series.c.job_id == trials.c.job_id, metric_series.c.name == metric)
    found = (
        trials.join(first, and_(first.c.sweep_id == trials.c.sweep_id, first.c.number == trials.c.number))
        .outerjoin(jobs, jobs.c.id == trials.c.job_id)
        .outerjoin(metric_series, series)
    )
    statement = select(*trials.c, *_of_job()).select_from(found).where(first.c.place == 1)
    return (await tx.execute(statement)).mappings().all()


def _metric() -> ColumnElement[str]:
    """The name of what a sweep compares."""
    return func.coalesce(sweeps.c.sweep["metric"].as_string(), "loss")


def _of_job() -> tuple[ColumnElement[Any], ...]:
    """The state of a trial's job, and its newest step, which is that of the metric if the job reports no steps."""
    return jobs.c.state.label("job_state"), func.coalesce(jobs.c.step, metric_series.c.last_step).label("step")


async def change(tx: AsyncConnection, sweep_id: str, number: int, values: Mapping[str, Any]) -> None:
    await change_all(tx, sweep_id, {number: values})


async def change_all(tx: AsyncConnection, sweep_id: str, changes: Mapping[int, Mapping[str, Any]]) -> None:
    """Store columns by the trial's number. Trials with equal values take one statement: a cancellation may change a thousand."""
    by_values: dict[str, list[int]] = {}
    for number, values in changes.items():
        by_values.setdefault(json.dumps(values, sort_keys=True), []).append(number)
    for numbers in by_values.values():
        statement = update(trials).where(trials.c.sweep_id == sweep_id, trials.c.number.in_(numbers))
        await tx.execute(statement.values({**changes[numbers[0]], "changed_at": unix_now(tx)}))


async def now(tx: AsyncConnection) -> float:
    """Unix seconds by the clock that says when trials changed."""
    return float((await tx.execute(select(unix_now(tx)))).scalar_one())


async def counts(tx: AsyncConnection, sweep_ids: Sequence[str]) -> dict[str, dict[tuple[str, str | None], int]]:
    """Sweep → standing and outcome → number of trials."""
    statement = select(trials.c.sweep_id, trials.c.standing, trials.c.outcome, func.count().label("count"))
    grouped = statement.where(trials.c.sweep_id.in_(sweep_ids)).group_by(*statement.selected_columns[:3])
    found: dict[str, dict[tuple[str, str | None], int]] = {}
    for row in await tx.execute(grouped):
        found.setdefault(row.sweep_id, {})[row.standing, row.outcome] = int(row[3])
    return found


async def device_seconds(tx: AsyncConnection, sweep_ids: Sequence[str], now: float) -> dict[str, float]:
    """Sweep → device-seconds of all attempts of its jobs, up to `now` for those that have not ended."""
    statement = select(trials.c.sweep_id, func.sum(spent(now, await clusters.gone(tx))).label("spent"))
    of_jobs = trials.join(jobs, jobs.c.id == trials.c.job_id).join(attempts, attempts.c.job_id == jobs.c.id)
    joined = statement.select_from(of_jobs)
    grouped = joined.where(trials.c.sweep_id.in_(sweep_ids)).group_by(trials.c.sweep_id)
    return {row.sweep_id: float(row.spent) for row in await tx.execute(grouped)}
