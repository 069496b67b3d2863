"""Migrates the schema with Alembic, in one transaction, by one process at a time."""

from typing import Any

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, text

from ..database_errors import DatabaseDenied, DatabaseMissing, SchemaTooOld
from ..database_url import parse
from .driver_errors import translated
from .engine import Store, writing_engine
from .revision import MIGRATIONS, refuse_misfit
from .tables import METADATA

#: An arbitrary number, the same in every process that migrates.
_LOCK = 7_382_945_102


async def upgrade(url: str, *, existing: bool = True) -> None:
    """Migrate the database to this version's schema. Harmless when repeated or done by several processes at once.

    `existing`: also the schema of an earlier version; otherwise SchemaTooOld is raised for it. Raises DatabaseError; SchemaTooNew and
    SchemaUnknown, without changing it, for a schema of a newer version or another program.
    """
    parsed = parse(url)
    engine = writing_engine(parsed)
    try:
        with translated(parsed):
            async with engine.begin() as tx:
                if tx.dialect.name == "postgresql":
                    await tx.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
                await tx.run_sync(_upgrade, existing)
    except DatabaseMissing as error:
        if parsed.drivername.startswith("postgresql"):
            raise
        says = f"The database's file {parsed.database} cannot be made."
        cure = "Operators: name a file in a folder that this user may write in SHARDYARD_DATABASE_URL."
        raise DatabaseDenied(error.detail, says=says, cure=cure) from None
    finally:
        await engine.dispose()


def _upgrade(connection: Connection, existing: bool) -> None:
    heads = MigrationContext.configure(connection).get_current_heads()
    try:
        if heads:
            refuse_misfit(", ".join(sorted(heads)))
            return
    except SchemaTooOld:
        if not existing:
            raise
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes |= {"connection": connection, "metadata": METADATA}
    command.upgrade(config, "head")


async def differences(store: Store) -> list[Any]:
    """Differences between the database and the tables in code; empty when the migrations are complete."""
    async with store.read() as tx:
        return await tx.run_sync(_differences)


def _differences(connection: Connection) -> list[Any]:
    options = {"compare_type": True}
    return list(compare_metadata(MigrationContext.configure(connection, opts=options), METADATA))
