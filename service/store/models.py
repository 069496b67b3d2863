"""SQL of the model registry: `models`, `model_versions`, `model_aliases`, `model_changes`.

All changes of a model are made with its row locked, so numbers have no gap of a crash, and an alias moves by compare-and-set.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, exists, func, select, tuple_, update
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from .dialect import insert
from .model_tables import checkpoint_pins as pins
from .model_tables import model_aliases as aliases
from .model_tables import model_changes as changes
from .model_tables import model_versions as versions
from .model_tables import models
from .program_tables import artifacts
from .tables import checkpoints

_LIVING = versions.c.deleted_at.is_(None)


async def lock(tx: AsyncConnection, name: str) -> RowMapping | None:
    statement = select(models).where(models.c.name == name).with_for_update()
    return (await tx.execute(statement)).mappings().first()


async def create(tx: AsyncConnection, name: str, actor: str, now: float) -> None:
    """Store a model without versions, unless there is one of this name."""
    statement = insert(tx, models).values(name=name, actor=actor, created_at=now)
    await tx.execute(statement.on_conflict_do_nothing(index_elements=["name"]))


async def get(tx: AsyncConnection, name: str) -> RowMapping | None:
    """A model, with the number of its newest version as `latest`."""
    statement = select(*models.c, _latest().label("latest")).where(models.c.name == name)
    return (await tx.execute(statement)).mappings().first()


async def page(tx: AsyncConnection, after: str | None, limit: int) -> Sequence[RowMapping]:
    """Models with versions in order of their names, each with the number of the newest as `latest`."""
    statement = select(*models.c, _latest().label("latest")).where(
        exists().where(versions.c.model == models.c.name, _LIVING)
    )
    if after is not None:
        statement = statement.where(models.c.name > after)
    return (await tx.execute(statement.order_by(models.c.name).limit(limit))).mappings().all()


def _latest() -> Any:
    mine = select(func.max(versions.c.number)).where(versions.c.model == models.c.name, _LIVING)
    return mine.correlate(models).scalar_subquery()


# Versions


async def add_version(tx: AsyncConnection, name: str, values: Mapping[str, Any]) -> RowMapping | None:
    """Store a version under the next number. Call only with the model's row locked. None if another version has its idempotency key."""
    numbered = update(models).where(models.c.name == name).values(newest=models.c.newest + 1).returning(models.c.newest)
    number = (await tx.execute(numbered)).scalar_one()
    made = insert(tx, versions).values(model=name, number=number, **values)
    made = made.on_conflict_do_nothing(index_elements=["idempotency_key"])
    return (await tx.execute(made.returning(*versions.c))).mappings().first()


async def by_key(tx: AsyncConnection, key: str) -> RowMapping | None:
    """The version, deleted or not, that was created under this idempotency key."""
    return (await tx.execute(select(versions).where(versions.c.idempotency_key == key))).mappings().first()


async def version(tx: AsyncConnection, name: str, number: int) -> RowMapping | None:
    statement = select(versions).where(versions.c.model == name, versions.c.number == number, _LIVING)
    return (await tx.execute(statement)).mappings().first()


async def versions_before(tx: AsyncConnection, name: str, before: int | None, limit: int) -> Sequence[RowMapping]:
    """Versions below a number, newest first."""
    statement = select(versions).where(versions.c.model == name, _LIVING)
    if before is not None:
        statement = statement.where(versions.c.number < before)
    return (await tx.execute(statement.order_by(versions.c.number.desc()).limit(limit))).mappings().all()


async def delete_version(tx: AsyncConnection, name: str, number: int, now: float) -> None:
    """Keep the row as a tombstone: its number and its key are never given again."""
    mine = (versions.c.model == name, versions.c.number == number)
    await tx.execute(update(versions).where(*mine).values(deleted_at=now))


async def note_digest(tx: AsyncConnection, job_id: str, step: int, digest: str) -> None:
    """The checksum of a checkpoint's manifest, for the versions of it that have none yet."""
    mine = (versions.c.source == job_id, versions.c.step == step, versions.c.artifact.is_(None), _LIVING)
    await tx.execute(update(versions).where(*mine, versions.c.digest.is_(None)).values(digest=digest))


async def of_job(tx: AsyncConnection, job_id: str) -> RowMapping | None:
    """A version that comes from this job, if there is one."""
    statement = select(versions).where(versions.c.source == job_id, _LIVING).limit(1)
    return (await tx.execute(statement)).mappings().first()


async def of_steps(tx: AsyncConnection, job_id: str, steps: Collection[int]) -> dict[int, list[str]]:
    """Step → the versions, as NAME@NUMBER, of a job's checkpoints of these steps."""
    mine = (versions.c.source == job_id, versions.c.artifact.is_(None), versions.c.step.in_(steps), _LIVING)
    statement = select(versions.c.step, versions.c.model, versions.c.number).where(*mine)
    found: dict[int, list[str]] = {}
    for row in await tx.execute(statement.order_by(versions.c.model, versions.c.number)):
        found.setdefault(int(row.step), []).append(f"{row.model}@{row.number}")
    return found


async def checkpoints_of(
    tx: AsyncConnection, rows: Sequence[RowMapping]
) -> dict[tuple[str, int], tuple[str, str | None]]:
    """Job and step → state of the checkpoint, and its checksum if it is pinned, of the versions that are checkpoints."""
    keys = {(row["source"], row["step"]) for row in rows if row["artifact"] is None}
    same = and_(pins.c.job_id == checkpoints.c.job_id, pins.c.step == checkpoints.c.step)
    columns = (checkpoints.c.job_id, checkpoints.c.step, checkpoints.c.state, pins.c.digest)
    statement = select(*columns).select_from(checkpoints.outerjoin(pins, same))
    wanted = statement.where(tuple_(checkpoints.c.job_id, checkpoints.c.step).in_(sorted(keys)))
    return {(row.job_id, row.step): (row.state, row.digest) for row in await tx.execute(wanted)}


async def files_of(tx: AsyncConnection, rows: Sequence[RowMapping]) -> dict[tuple[str, str, int], str]:
    """Job, name and step → SHA-256 as it is stored now, of the versions that are logged files."""
    keys = {(row["source"], row["artifact"], row["step"]) for row in rows if row["artifact"] is not None}
    columns = (artifacts.c.job_id, artifacts.c.name, artifacts.c.step)
    wanted = select(*columns, artifacts.c.sha256).where(tuple_(*columns).in_(sorted(keys)))
    return {(row.job_id, row.name, row.step): row.sha256 for row in await tx.execute(wanted)}


def names(job_id: ColumnElement[str]) -> ColumnElement[bool]:
    """Whether a version comes from the job."""
    return exists().where(versions.c.source == job_id, _LIVING)


# Aliases


async def aliases_of(tx: AsyncConnection, among: Collection[str]) -> Sequence[RowMapping]:
    """The aliases of these models, in order."""
    statement = select(aliases).where(aliases.c.model.in_(among)).order_by(aliases.c.model, aliases.c.alias)
    return (await tx.execute(statement)).mappings().all()


async def alias(tx: AsyncConnection, name: str, text: str) -> RowMapping | None:
    statement = select(aliases).where(aliases.c.model == name, aliases.c.alias == text)
    return (await tx.execute(statement)).mappings().first()


async def count_aliases(tx: AsyncConnection, name: str) -> int:
    mine = select(func.count()).select_from(aliases).where(aliases.c.model == name)
    return int((await tx.execute(mine)).scalar_one())


async def set_alias(tx: AsyncConnection, name: str, text: str, values: Mapping[str, Any]) -> RowMapping:
    """Call only with the model's row locked."""
    statement = insert(tx, aliases).values(model=name, alias=text, **values)
    statement = statement.on_conflict_do_update(index_elements=["model", "alias"], set_=dict(values))
    return (await tx.execute(statement.returning(*aliases.c))).mappings().one()


async def remove_alias(tx: AsyncConnection, name: str, text: str) -> None:
    await tx.execute(delete(aliases).where(aliases.c.model == name, aliases.c.alias == text))


# History


async def note(tx: AsyncConnection, name: str, values: Mapping[str, Any]) -> None:
    """Append an entry (kind, data, actor, ts) to a model's history. Call only with the model's row locked."""
    counted = update(models).where(models.c.name == name).values(changes=models.c.changes + 1)
    position = (await tx.execute(counted.returning(models.c.changes))).scalar_one()
    await tx.execute(changes.insert().values(model=name, position=position, **values))


async def history(tx: AsyncConnection, name: str, before: int | None, limit: int) -> Sequence[RowMapping]:
    """Entries below a position, newest first."""
    statement = select(changes).where(changes.c.model == name)
    if before is not None:
        statement = statement.where(changes.c.position < before)
    return (await tx.execute(statement.order_by(changes.c.position.desc()).limit(limit))).mappings().all()
