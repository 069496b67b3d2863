"""SQL of the tables `code_archives` and `code_parts`.

An archive is `uploading` until all of its parts are there, then `complete`, until no job has named it for a while: then it is
`removing`, and a new upload of the same content makes a new row. If storage loses files of a complete one, it is `uploading` again.
`id` is also the name of its folder in storage.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import delete, exists, select, update
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from . import dialect
from .program_tables import KEPT_CODE
from .program_tables import code_archives as archives
from .program_tables import code_parts as parts
from .tables import jobs

#: Values in one statement.
_AT_ONCE: Final = 500


async def kept(tx: AsyncConnection, digest: str) -> RowMapping | None:
    """The archive of this content, unless it is being removed."""
    statement = select(archives).where(archives.c.digest == digest, archives.c.state != "removing")
    return (await tx.execute(statement)).mappings().first()


async def begin(tx: AsyncConnection, values: Mapping[str, Any]) -> RowMapping:
    """The archive of this content, which counts as used now; made if there is none."""
    now = dialect.unix_now(tx)
    made = dialect.insert(tx, archives).values(**values, state="uploading", created_at=now, used_at=now)
    await tx.execute(made.on_conflict_do_nothing(index_elements=["digest"], index_where=KEPT_CODE))
    mine = (archives.c.digest == values["digest"], archives.c.state != "removing")
    statement = update(archives).where(*mine).values(used_at=now).returning(archives)
    row: RowMapping = (await tx.execute(statement)).mappings().one()
    return row


async def add_part(tx: AsyncConnection, archive_id: str, number: int) -> None:
    """A part is in storage."""
    values = {"archive_id": archive_id, "number": number}
    await tx.execute(dialect.insert(tx, parts).values(values).on_conflict_do_nothing())


async def parts_of(tx: AsyncConnection, archive_id: str) -> set[int]:
    """Numbers of the parts that are in storage."""
    return set((await tx.execute(select(parts.c.number).where(parts.c.archive_id == archive_id))).scalars())


async def complete(tx: AsyncConnection, archive_id: str) -> None:
    mine = (archives.c.id == archive_id, archives.c.state == "uploading")
    await tx.execute(update(archives).where(*mine).values(state="complete"))


async def reopen(tx: AsyncConnection, archive_id: str, state: str, lost: Collection[int]) -> RowMapping | None:
    """Parts of an archive that is in this state are lost: it is `uploading` again. None if it is in another state by now."""
    mine = (archives.c.id == archive_id, archives.c.state == state)
    statement = update(archives).where(*mine).values(state="uploading").returning(archives)
    row: RowMapping | None = (await tx.execute(statement)).mappings().first()
    if row is not None:
        await tx.execute(delete(parts).where(parts.c.archive_id == archive_id, parts.c.number.in_(lost)))
    return row


async def use(tx: AsyncConnection, archive_id: str) -> bool:
    """The archive counts as used now. False if it is not complete (any more)."""
    mine = (archives.c.id == archive_id, archives.c.state == "complete")
    done = await tx.execute(update(archives).where(*mine).values(used_at=dialect.unix_now(tx)).returning(archives.c.id))
    return done.first() is not None


async def discard(tx: AsyncConnection, archive_id: str) -> None:
    """The archive is to be removed, even if it was used."""
    await tx.execute(update(archives).where(archives.c.id == archive_id).values(state="removing"))


async def use_all(tx: AsyncConnection, digests: Collection[str]) -> set[str]:
    """The archives of these contents count as used now. Returns the contents of which none is complete (any more)."""
    ordered, used = sorted(digests), set[str]()  # in one order, so that two that do this do not wait for each other
    for at in range(0, len(ordered), _AT_ONCE):
        mine = (archives.c.digest.in_(ordered[at : at + _AT_ONCE]), archives.c.state == "complete")
        statement = update(archives).where(*mine).values(used_at=dialect.unix_now(tx)).returning(archives.c.digest)
        used.update((await tx.execute(statement)).scalars())
    return set(ordered) - used


async def discard_unused(tx: AsyncConnection, unused_s: float, limit: int) -> Sequence[str]:
    """Archives that no job names, and whose last use is this many seconds ago, are to be removed. Returns all that are."""
    unused = (
        archives.c.used_at < dialect.unix_begin(tx) - unused_s,
        archives.c.state != "removing",
        ~exists().where(jobs.c.code == archives.c.id),
    )
    some = select(archives.c.id).where(*unused).limit(limit)
    await tx.execute(update(archives).where(archives.c.id.in_(some), *unused).values(state="removing"))
    statement = select(archives.c.id).where(archives.c.state == "removing").limit(limit)
    return (await tx.execute(statement)).scalars().all()


async def forget(tx: AsyncConnection, archive_id: str) -> None:
    """Delete an archive whose files are gone."""
    await tx.execute(delete(parts).where(parts.c.archive_id == archive_id))
    await tx.execute(delete(archives).where(archives.c.id == archive_id, archives.c.state == "removing"))
