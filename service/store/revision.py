"""Checks which revision of the schema a database has, and whether this version of the code can use it.

A database may be migrated, or restored, while a process runs. So every transaction begins with this check, which queries the
database once a second. If the schema does not fit, nothing is read or written; work continues as soon as it fits again.
"""

import time
from functools import cache
from pathlib import Path
from typing import Final

from alembic.script import ScriptDirectory
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from ..database_errors import SchemaDamaged, SchemaMissing, SchemaTooNew, SchemaTooOld, SchemaUnknown
from .driver_errors import explained

#: Seconds for which the database is not queried again.
CHECK_S = 1.0

MIGRATIONS: Final = Path(__file__).parent / "migrations"


@cache
def known_revisions() -> tuple[str, ...]:
    """The revisions of this version's migrations, oldest first."""
    scripts = ScriptDirectory(str(MIGRATIONS)).walk_revisions()
    return tuple(script.revision for script in scripts)[::-1]


def refuse_misfit(found: str | None) -> None:
    """Raises SchemaMissing, SchemaTooOld, SchemaTooNew or SchemaUnknown unless `found` is this version's revision."""
    newest = known_revisions()[-1]
    if found == newest:
        return
    if found is None:
        raise SchemaMissing
    here = f"this version of Shardyard needs {newest}"
    if found in known_revisions():
        raise SchemaTooOld(says=f"The database's schema is too old: it has revision {found}, {here}.")
    if found.isdigit() and int(found) > int(newest):
        raise SchemaTooNew(says=f"The database's schema is too new: it has revision {found}, {here}.")
    raise SchemaUnknown(says=f"The database's schema is not Shardyard's: it has revision {found[:40]!r}.")


async def stored_revision(tx: AsyncConnection) -> str | None:
    """The revision that the database has; None without one. On PostgreSQL without that table, the transaction cannot continue."""
    try:
        found = (await tx.execute(text("SELECT version_num FROM alembic_version"))).scalars().all()
    except SQLAlchemyError as error:
        if isinstance(explained(error, tx.engine.url), SchemaDamaged):
            return None
        raise
    return ", ".join(sorted(found)) or None


class RevisionCheck:
    """The check of one store. A revision that fits is cached for `CHECK_S`; one that does not fit is queried each time."""

    def __init__(self) -> None:
        self._fits_until = float("-inf")

    async def check(self, tx: AsyncConnection) -> None:
        """Raises what `refuse_misfit` does."""
        if time.monotonic() < self._fits_until:
            return
        self.forget()
        asked = time.monotonic()  # the answer may have waited for a migration
        refuse_misfit(await stored_revision(tx))
        self._fits_until = asked + CHECK_S

    def forget(self) -> None:
        """Make the next transaction query the database."""
        self._fits_until = float("-inf")
