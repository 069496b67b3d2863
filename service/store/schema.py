"""Migrates the schema with Alembic, in one transaction, by one process at a time.

On PostgreSQL, processes of the earlier version may run meanwhile. They stop at their check of the revision until the migration ends.
"""

import asyncio
from typing import Any, Final

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection

from ..database_errors import DatabaseDenied, DatabaseMissing, SchemaTooOld
from ..database_url import parse
from .driver_errors import translated
from .engine import Store, writing_engine
from .revision import CHECK_S, MIGRATIONS, refuse_misfit
from .tables import METADATA

#: An arbitrary number, the same in every process that migrates.
_LOCK = 7_382_945_102
_LOCK_NOT_AVAILABLE: Final = "55P03"
#: Seconds after which no process relies any more on a check of the revision from before the migration.
SETTLE_S: Final = 1.5 * CHECK_S


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
                if await tx.run_sync(_is_current, existing):
                    return
                if tx.dialect.name == "postgresql":
                    await _stop_others(tx)
                await tx.run_sync(_upgrade)
    except DatabaseMissing as error:
        if parsed.drivername.startswith("postgresql"):
            raise
        says = f"The database's file {parsed.database} cannot be made."
        cure = "Operators: name a file in a folder that this user may write in SHARDYARD_DATABASE_URL."
        raise DatabaseDenied(error.detail, says=says, cure=cure) from None
    finally:
        await engine.dispose()


def _is_current(connection: Connection, existing: bool) -> bool:
    """Whether nothing is to be done. Raises as `upgrade`."""
    heads = MigrationContext.configure(connection).get_current_heads()
    if not heads:
        return False
    try:
        refuse_misfit(", ".join(sorted(heads)))
    except SchemaTooOld:
        if not existing:
            raise
        return False
    return True


async def _stop_others(tx: AsyncConnection) -> None:
    """Wait for the transactions that use the tables, and lock all tables at once.

    A transaction that begins now stops at its check of the revision, before it uses a table. One that has passed the check is waited
    for without a lock on any table that it may need: so there is no deadlock with it.
    """
    found = await tx.run_sync(lambda connection: set(inspect(connection).get_table_names()))
    if "alembic_version" not in found:
        return
    tables = [tx.dialect.identifier_preparer.quote(name) for name in sorted(found & METADATA.tables.keys())]
    await tx.execute(text("LOCK TABLE alembic_version"))
    await asyncio.sleep(SETTLE_S)
    while tables and not await _lock_all(tx, tables):
        for table in tables:
            async with tx.begin_nested() as waiting:
                await tx.execute(text(f"LOCK TABLE {table}"))
                await waiting.rollback()


async def _lock_all(tx: AsyncConnection, tables: list[str]) -> bool:
    """Lock all tables, or none if a transaction uses one."""
    try:
        async with tx.begin_nested():
            await tx.execute(text(f"LOCK TABLE {', '.join(tables)} NOWAIT"))
    except OperationalError as error:
        if getattr(error.orig, "sqlstate", None) != _LOCK_NOT_AVAILABLE:
            raise
        return False
    return True


def _upgrade(connection: Connection) -> None:
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
