"""SQL of the table `artifacts`: what files a job's programs logged. Their content is in the job's storage, by its digest.

One row for each name and step; what is logged again replaces it. A file without a step has the step -1 here.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import and_, case, func, or_, select
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from .dialect import insert
from .program_tables import artifacts

#: Step of a file that belongs to the whole run.
NO_STEP: Final = -1
_AT_ONCE: Final = 100

#: A name, and a step or NO_STEP.
Key = tuple[str, int]


async def sizes(tx: AsyncConnection, job_id: str, keys: Sequence[Key]) -> dict[Key, int]:
    """Bytes of those of these that are stored."""
    found: dict[Key, int] = {}
    for at in range(0, len(keys), _AT_ONCE):
        same = [and_(artifacts.c.name == name, artifacts.c.step == step) for name, step in keys[at : at + _AT_ONCE]]
        columns = select(artifacts.c.name, artifacts.c.step, artifacts.c.bytes)
        for row in await tx.execute(columns.where(artifacts.c.job_id == job_id, or_(*same))):
            found[row.name, row.step] = row.bytes
    return found


async def totals(tx: AsyncConnection, job_id: str) -> tuple[int, int]:
    """Number of a job's files, and their bytes."""
    statement = select(func.count(), func.coalesce(func.sum(artifacts.c.bytes), 0)).where(artifacts.c.job_id == job_id)
    count, size = (await tx.execute(statement)).one()
    return int(count), int(size)


async def put(tx: AsyncConnection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Store rows of different keys. One of an older run than the stored one is left out. Call only with the job's row locked."""
    statement = insert(tx, artifacts)
    names = ("type", "rank", "run", "bytes", "sha256", "media_type", "ts")
    changed = statement.on_conflict_do_update(
        index_elements=["job_id", "name", "step"],
        set_={name: statement.excluded[name] for name in names},
        where=artifacts.c.run <= statement.excluded["run"],
    )
    if rows:
        await tx.execute(changed, list(rows))


async def page(
    tx: AsyncConnection,
    job_id: str,
    *,
    prefix: str = "",
    kind: str | None = None,
    after: Key | None = None,
    limit: int = 100,
) -> Sequence[RowMapping]:
    """At most `limit` files in order of name and step, after a key; only those of a kind, whose name begins with `prefix`."""
    statement = select(artifacts).where(artifacts.c.job_id == job_id)
    if prefix:
        statement = statement.where(func.substr(artifacts.c.name, 1, len(prefix)) == prefix)
    if kind is not None:
        statement = statement.where(artifacts.c.type == kind)
    if after is not None:
        name, step = after
        later = and_(artifacts.c.name == name, artifacts.c.step > step)
        statement = statement.where(or_(artifacts.c.name > name, later))
    ordered = statement.order_by(artifacts.c.name, artifacts.c.step).limit(limit)
    return (await tx.execute(ordered)).mappings().all()


async def get(tx: AsyncConnection, job_id: str, name: str, step: int | None) -> RowMapping | None:
    """A file at a step; None: the one without a step, or if there is none at its newest step."""
    statement = select(artifacts).where(artifacts.c.job_id == job_id, artifacts.c.name == name)
    if step is not None:
        statement = statement.where(artifacts.c.step == step)
    # Else a file without a step could not be named beside those with one.
    order = case((artifacts.c.step == NO_STEP, 0), else_=1), artifacts.c.step.desc()
    return (await tx.execute(statement.order_by(*order).limit(1))).mappings().first()
