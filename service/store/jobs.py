"""SQL of the tables `jobs` and `labels`."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, and_, case, func, literal, not_, or_, select, tuple_, update
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from ..ids import CLUSTER
from ..schemas.job_order import Order, Sort
from ..states import HOLDING, State
from .dialect import insert as dialect_insert
from .dialect import unix_begin, unix_now
from .tables import attempts, jobs, labels

#: Ids in one statement.
_IDS = 500
#: Specs that were stored before hot spares existed do not name them.
SPARES = func.coalesce(jobs.c.spec["policy"]["spares"].as_integer(), 0)
#: Nor which nodes they may use together.
_GPU = func.coalesce(jobs.c.spec["resources"]["gpu"].as_string(), "")
_CPUS = func.coalesce(jobs.c.spec["resources"]["cpus_per_gpu"].as_float(), 0.0)
_WITHIN = func.coalesce(jobs.c.spec["resources"]["within"].as_string(), "")
_IMAGE = func.coalesce(jobs.c.spec["env"]["image"].as_string(), "")
#: Ranks and spares of a job's newest attempt, which is joined.
_GIVEN = func.coalesce(attempts.c.devices, jobs.c.world_size + SPARES)


async def insert(tx: AsyncConnection, values: Mapping[str, Any]) -> bool:
    """Store a job and its labels. Returns False, and stores nothing, if its idempotency key is taken."""
    statement = dialect_insert(tx, jobs).values(values).on_conflict_do_nothing(index_elements=["idempotency_key"])
    if (await tx.execute(statement.returning(jobs.c.id))).first() is None:
        return False
    await _insert_labels(tx, values["id"], values["labels"])
    return True


async def _insert_labels(tx: AsyncConnection, job_id: str, given: Mapping[str, str]) -> None:
    if given:
        await tx.execute(labels.insert(), [{"job_id": job_id, "key": key, "value": given[key]} for key in given])


async def edit(tx: AsyncConnection, job_id: str, values: Mapping[str, Any]) -> None:
    """Set columns; `labels` in both tables. The row is updated first: its lock lets a later edit see this one's labels."""
    await set_columns(tx, job_id, values)
    if "labels" in values:
        await tx.execute(labels.delete().where(labels.c.job_id == job_id))
        await _insert_labels(tx, job_id, values["labels"])


async def by_id(tx: AsyncConnection, job_id: str) -> RowMapping | None:
    return (await tx.execute(select(jobs).where(jobs.c.id == job_id))).mappings().first()


async def newest_named(tx: AsyncConnection, name: str, *, deleted: bool = False) -> RowMapping | None:
    """The newest job of this name among those that are not deleted, or that are; one that is being removed comes last."""
    order = [jobs.c.removing, jobs.c.id.desc()] if deleted else [jobs.c.id.desc()]
    statement = select(jobs).where(jobs.c.name == name, _deleted(deleted)).order_by(*order).limit(1)
    return (await tx.execute(statement)).mappings().first()


def _deleted(wanted: bool) -> ColumnElement[bool]:
    return jobs.c.deleted_at.is_not(None) if wanted else jobs.c.deleted_at.is_(None)


async def by_key(tx: AsyncConnection, idempotency_key: str) -> RowMapping | None:
    return (await tx.execute(select(jobs).where(jobs.c.idempotency_key == idempotency_key))).mappings().first()


async def positions(tx: AsyncConnection, job_id: str) -> RowMapping | None:
    """State and the last positions: the most frequent query of live readers."""
    columns = (jobs.c.state, jobs.c.event_pos, jobs.c.step_pos, jobs.c.log_pos, jobs.c.rank_pos)
    return (await tx.execute(select(*columns).where(jobs.c.id == job_id))).mappings().first()


@dataclass(frozen=True)
class Filter:
    """Conditions for jobs: all that are set must hold. `text` is part of the id or the name. `deleted`: only jobs that can be restored."""

    state: State | None = None
    name: str | None = None
    text: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    deleted: bool = False


@dataclass(frozen=True)
class Place:
    """A row in an order: `value` is its name or state in the order of names or states. `numbered_jobs.py` has the other orders."""

    id: str
    value: str = ""


_NEWEST: Final = Sort()
#: Orders by a column, and by id where it is equal.
_COLUMN = {Order.NAME: jobs.c.name, Order.STATE: jobs.c.state}


async def page(
    tx: AsyncConnection, wanted: Filter, after: Place | None, limit: int, sort: Sort = _NEWEST
) -> Sequence[RowMapping]:
    """At most `limit` jobs that come after a place, in an order by a text."""
    descending = sort.descending or sort.order == Order.NEWEST
    column = _COLUMN.get(sort.order)
    key = [jobs.c.id] if column is None else [column, jobs.c.id]
    statement = select(jobs).where(*conditions(wanted)).limit(limit)
    if after is not None:
        here: ColumnElement[Any] = jobs.c.id if column is None else tuple_(*key)
        there = literal(after.id) if column is None else tuple_(literal(after.value), literal(after.id))
        statement = statement.where(here < there if descending else here > there)
    statement = statement.order_by(*(part.desc() if descending else part.asc() for part in key))
    return (await tx.execute(statement)).mappings().all()


async def count(tx: AsyncConnection, states: Collection[State]) -> int:
    """The number of jobs in these states that are not deleted."""
    return (await tx.execute(counting(states))).scalar_one()


def counting(states: Collection[State]) -> Select[int]:
    """The query of `count`."""
    return select(func.count()).select_from(jobs).where(jobs.c.state.in_(sorted(states)), _deleted(False))


async def by_ids(tx: AsyncConnection, job_ids: Sequence[str]) -> dict[str, RowMapping]:
    """Id → row, of at most 500 jobs."""
    return {row["id"]: row for row in (await tx.execute(select(jobs).where(jobs.c.id.in_(job_ids)))).mappings()}


def conditions(wanted: Filter) -> list[ColumnElement[bool]]:
    """The conditions of a filter, for a statement that reads `jobs`."""
    found = [_deleted(wanted.deleted)]
    if wanted.deleted:
        found.append(jobs.c.removing.is_(False))
    if wanted.state is not None:
        found.append(jobs.c.state == wanted.state)
    if wanted.name is not None:
        found.append(jobs.c.name == wanted.name)
    if wanted.text is not None:
        part = wanted.text.lower()
        found.append(or_(jobs.c.id.contains(part, autoescape=True), jobs.c.name.contains(part, autoescape=True)))
    for key, value in wanted.labels.items():
        having = select(labels.c.job_id).where(labels.c.key == key, labels.c.value == value)
        found.append(jobs.c.id.in_(having))
    return found


async def change_state(
    tx: AsyncConnection, job_id: str, before: State, token: str | None, values: Mapping[str, Any]
) -> RowMapping | None:
    """Compare-and-set: only from `before` and, when `token` is given, under that lease. Takes an event position."""
    statement = update(jobs).where(jobs.c.id == job_id, jobs.c.state == before)
    if token is not None:
        statement = statement.where(jobs.c.lease_token == token)
    statement = statement.values(event_pos=jobs.c.event_pos + 1, **values)
    return (await tx.execute(statement.returning(jobs.c.event_pos, jobs.c.attempt))).mappings().first()


def once(column: str, value: float) -> ColumnElement[float]:
    """`value` for a column that keeps the first value it gets."""
    return func.coalesce(jobs.c[column], value)


def elapsed(now: float) -> ColumnElement[float]:
    """Seconds from the job's start to `now`; null if it has not started."""
    return literal(now) - jobs.c.started_at


async def explain(
    tx: AsyncConnection, job_ids: Collection[str], reason: str, message: str, *, events: int = 1
) -> Sequence[RowMapping]:
    """Store why these jobs wait, and return those that are still queued, with id and attempt. Takes `events` event positions of each."""
    statement = update(jobs).where(jobs.c.id.in_(job_ids), jobs.c.state == State.QUEUED)
    statement = statement.values(reason=reason, message=message, event_pos=jobs.c.event_pos + events)
    return (await tx.execute(statement.returning(jobs.c.id, jobs.c.event_pos, jobs.c.attempt))).mappings().all()


async def take_positions(tx: AsyncConnection, job_id: str, counter: str, count: int) -> int:
    """Allocate `count` positions of `event_pos`, `step_pos`, `log_pos` or `rank_pos`; returns the one before the first."""
    column = jobs.c[counter]
    statement = update(jobs).where(jobs.c.id == job_id).values({counter: column + count}).returning(column)
    return int((await tx.execute(statement)).scalar_one()) - count


async def locked(tx: AsyncConnection, job_id: str, token: str) -> RowMapping | None:
    """The row, locked until the transaction's end, if the lease still holds."""
    statement = select(jobs).where(jobs.c.id == job_id, jobs.c.lease_token == token).with_for_update()
    return (await tx.execute(statement)).mappings().first()


async def lock(tx: AsyncConnection, job_id: str) -> RowMapping | None:
    """The row, locked until the transaction's end, regardless of its lease."""
    return (await tx.execute(select(jobs).where(jobs.c.id == job_id).with_for_update())).mappings().first()


async def set_columns(tx: AsyncConnection, job_id: str, values: Mapping[str, Any]) -> None:
    await tx.execute(update(jobs).where(jobs.c.id == job_id).values(values))


def unleased(tx: AsyncConnection) -> ColumnElement[bool]:
    return or_(jobs.c.lease_token.is_(None), jobs.c.lease_until < unix_now(tx))


def _ready(tx: AsyncConnection) -> ColumnElement[bool]:
    """Queued, and the time of its next try has come."""
    return and_(jobs.c.state == State.QUEUED, jobs.c.retry_at <= unix_begin(tx))


def _may_run(cluster: str) -> ColumnElement[bool]:
    """A job that was placed stays with its cluster, whose nodes have its checkpoints."""
    return or_(jobs.c.cluster.is_(None), jobs.c.cluster == cluster)


async def shapes(tx: AsyncConnection) -> Sequence[str]:
    """The shapes of the queued jobs, each once."""
    return [row.shape for row in await tx.execute(distinct_shapes())]


def distinct_shapes() -> Select[tuple[str]]:
    """The query of `shapes`: one search of the index for each of them. DISTINCT would read the whole queue."""
    smallest, queued = func.min(jobs.c.shape), jobs.c.state == State.QUEUED
    found = select(smallest.label("shape")).where(queued).cte("found", recursive=True)
    following = select(smallest).where(queued, jobs.c.shape > found.c.shape).scalar_subquery()
    found = found.union_all(select(following).where(found.c.shape.is_not(None)))
    return select(found.c.shape).where(found.c.shape.is_not(None))


async def queued(
    tx: AsyncConnection,
    limit: int,
    shapes: Collection[str] | None = None,
    after: str = "",
    cluster: str = CLUSTER,
    *,
    closing: bool = False,
) -> Sequence[RowMapping]:
    """The front of the queue, or of its part with these shapes or after this id: first submitted first.

    `closing`: with the jobs whose last attempt is still being closed, and which keep their place. A job that waits for its next try blocks
    no other job.
    """
    statement = front(tx, limit, shapes, after, cluster)
    return (await tx.execute(statement if closing else statement.where(unleased(tx)))).mappings().all()


def front(
    tx: AsyncConnection,
    limit: int,
    shapes: Collection[str] | None = None,
    after: str = "",
    cluster: str = CLUSTER,
) -> Select[*tuple[Any, ...]]:
    """The query of `queued`, leased jobs included."""
    wanted = (
        "id",
        "world_size",
        "tensor",
        "wanted_device",
        "shape",
        "reason",
        "message",
        "attempt",
        "elastic",
        "cluster",
        "event_pos",
    )
    impatient = func.coalesce(jobs.c.elastic_at <= unix_begin(tx), False)
    nodes = (_GPU.label("gpu"), _WITHIN.label("within"), _CPUS.label("cpus"), _IMAGE.label("image"))
    spec = (SPARES.label("spares"), *nodes)
    columns = (*(jobs.c[name] for name in wanted), *spec, impatient.label("impatient"))
    statement = select(*columns).where(_ready(tx), _may_run(cluster))
    if shapes is not None:
        statement = statement.where(jobs.c.shape.in_(sorted(shapes)))
    if after:
        statement = statement.where(jobs.c.id > after)
    return statement.order_by(jobs.c.id).limit(limit)


async def corpora(tx: AsyncConnection, job_ids: Collection[str]) -> Sequence[Mapping[str, Any]]:
    """`train.data` of those of these jobs that train, in the order of the queue."""
    data = jobs.c.spec[("train", "data")].label("data")
    found = await tx.execute(select(data).where(jobs.c.id.in_(job_ids)).order_by(jobs.c.id)) if job_ids else ()
    return [row.data for row in found if row.data is not None]


async def any_queued(tx: AsyncConnection) -> bool:
    """Whether a job might start now."""
    return (await tx.execute(select(jobs.c.id).where(_ready(tx)).limit(1))).first() is not None


async def may_grow(tx: AsyncConnection) -> Sequence[RowMapping]:
    """Elastic jobs that run, and were placed long enough ago to take another layout. First submitted first."""
    return (await tx.execute(growable(tx))).mappings().all()


def growable(tx: AsyncConnection) -> Select[*tuple[Any, ...]]:
    """The query of `may_grow`: it reads only elastic jobs."""
    wanted = ("id", "world_size", "tensor", "device", "elastic", "lease_token", "spec", "attempt")
    settled = (jobs.c.elastic_at.is_not(None), jobs.c.elastic_at <= unix_begin(tx))
    return select(*(jobs.c[name] for name in wanted)).where(jobs.c.state == State.RUNNING, *settled).order_by(jobs.c.id)


async def any_wants_devices(tx: AsyncConnection, shapes: Collection[str], cluster: str = CLUSTER) -> bool:
    """Whether a queued job of these shapes could use devices that are free, now or at its next try."""
    away = jobs.c.reason.in_(("too_many_ranks", "waiting_for_nodes"))
    may_use = or_(jobs.c.reason.is_(None), not_(away))
    waits = (jobs.c.state == State.QUEUED, jobs.c.shape.in_(shapes), may_use, _may_run(cluster))
    return (await tx.execute(select(jobs.c.id).where(*waits).limit(1))).first() is not None


async def held_ranks(
    tx: AsyncConnection, cluster: str = CLUSTER, ranks_per_core: int = 1, *, but: str = ""
) -> dict[str, int]:
    """Device → ranks and spares of the cluster's gangs that may hold devices now, as placed: a job's row may have its next layout.

    Cores beside GPUs count as the ranks on CPUs that would need them. `but`: a job that is not counted.
    """
    counted = (jobs.c.state.in_(HOLDING), jobs.c.cluster == cluster, jobs.c.id != but)
    return await _ranks_of(tx, _GIVEN, counted, ranks_per_core)


async def promised_ranks(tx: AsyncConnection, cluster: str = CLUSTER, ranks_per_core: int = 1) -> dict[str, int]:
    """Device → ranks and spares that the cluster's jobs in `resharding` are to have beside those that they hold.

    Cores as in `held_ranks`.
    """
    more = jobs.c.world_size + SPARES - _GIVEN
    counted = (jobs.c.state == State.RESHARDING, jobs.c.cluster == cluster, more > 0)
    return await _ranks_of(tx, more, counted, ranks_per_core)


async def _ranks_of(
    tx: AsyncConnection, ranks: ColumnElement[int], counted: Sequence[ColumnElement[bool]], ranks_per_core: int
) -> dict[str, int]:
    newest = and_(attempts.c.job_id == jobs.c.id, attempts.c.number == jobs.c.attempt)
    beside = func.sum(case((jobs.c.device == "cuda", ranks * _CPUS), else_=0.0))
    statement = select(jobs.c.device, func.sum(ranks), beside).join(attempts, newest, isouter=True)
    found: Counter[str] = Counter()
    for device, total, cores in await tx.execute(statement.where(*counted).group_by(jobs.c.device)):
        if device is not None:
            found[device] += int(total)
        if cores:
            found["cpu"] += ceil(cores * ranks_per_core)
    return dict(found)


async def holders(tx: AsyncConnection, job_ids: Collection[str]) -> dict[str, RowMapping]:
    """Job → the columns that describe it, if its gang holds devices."""
    statement = select(*(jobs.c[name] for name in ("id", "name", "state", "elastic"))).where(jobs.c.id.in_(job_ids))
    return {row["id"]: row for row in (await tx.execute(statement)).mappings()}


async def owners(tx: AsyncConnection, job_ids: Sequence[str]) -> dict[str, RowMapping]:
    """Job → its actor and labels, for those of the ids that exist."""
    found: dict[str, RowMapping] = {}
    for at in range(0, len(job_ids), _IDS):
        statement = select(jobs.c.id, jobs.c.actor, jobs.c.labels).where(jobs.c.id.in_(job_ids[at : at + _IDS]))
        found |= {row["id"]: row for row in (await tx.execute(statement)).mappings()}
    return found


async def placements(tx: AsyncConnection, job_ids: Sequence[str]) -> dict[str, tuple[State, int]]:
    """Job → its state and attempt, for those of the ids that exist."""
    statement = select(jobs.c.id, jobs.c.state, jobs.c.attempt).where(jobs.c.id.in_(job_ids))
    return {row.id: (State(row.state), row.attempt) for row in await tx.execute(statement)}
