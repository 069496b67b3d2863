"""SQL of the table `secrets`. Values are encrypted before they come here."""

from collections.abc import Collection, Sequence

from sqlalchemy import delete, func, select
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from .dialect import insert, unix_now
from .tables import secrets


async def put(tx: AsyncConnection, name: str, sealed: bytes, actor: str) -> RowMapping:
    """Store a secret, in place of the one of this name."""
    now = unix_now(tx)
    changes = {"sealed": sealed, "actor": actor, "updated_at": now}
    statement = insert(tx, secrets).values(name=name, created_at=now, **changes)
    statement = statement.on_conflict_do_update(index_elements=["name"], set_=changes)
    return (await tx.execute(statement.returning(*secrets.c))).mappings().one()


async def remove(tx: AsyncConnection, name: str) -> None:
    await tx.execute(delete(secrets).where(secrets.c.name == name))


async def count(tx: AsyncConnection, but: str) -> int:
    """The number of secrets of other names than `but`."""
    return int((await tx.execute(select(func.count()).where(secrets.c.name != but))).scalar_one())


async def without_values(tx: AsyncConnection) -> Sequence[RowMapping]:
    """All, by name."""
    columns = (secrets.c.name, secrets.c.actor, secrets.c.created_at, secrets.c.updated_at)
    return (await tx.execute(select(*columns).order_by(secrets.c.name))).mappings().all()


async def sealed(tx: AsyncConnection, names: Collection[str]) -> dict[str, bytes]:
    """Name → encrypted value, of those of these names that exist."""
    rows = await tx.execute(select(secrets.c.name, secrets.c.sealed).where(secrets.c.name.in_(names)))
    return {row.name: row.sealed for row in rows}
