"""The way to the database: one `Store` per process; its transactions wait for nothing but the database.

SQLite gets exactly one connection (same throughput as several, a twentieth of their worst latency), WAL, and
`BEGIN IMMEDIATE` for writers, so that a write never fails half-way for want of the lock.
"""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import event, text
from sqlalchemy.engine import URL, Connection, make_url
from sqlalchemy.exc import ArgumentError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from ..errors import InvalidDatabase

#: What a database that is away makes SQLAlchemy raise. Whether a commit was done before is not known then.
AWAY = (OperationalError, InterfaceError, PoolTimeout)

#: Seconds that SQLite waits for another process' write before it gives up.
BUSY_S = 30


class Store:
    """Opens transactions. `read()` and `write()` commit at their end and roll back when their body raises."""

    def __init__(self, url: str) -> None:
        self.engine = make_engine(url)

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        async with self.engine.begin() as connection:
            yield connection

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        async with self.engine.connect() as connection:
            await connection.execution_options(shardyard_write=True)
            async with connection.begin():
                yield connection

    async def ping(self) -> None:
        """Raises SQLAlchemy's error when the database does not answer."""
        async with self.read() as tx:
            await tx.execute(text("SELECT 1"))

    async def close(self) -> None:
        await self.engine.dispose()


def make_engine(url: str) -> AsyncEngine:
    """An engine for one of the two databases that pass the same tests. Raises InvalidDatabase for any other."""
    parsed = _parse(url)
    if parsed.drivername == "postgresql+psycopg":
        patience = {"connect_timeout": 10}
        return create_async_engine(parsed, pool_size=10, max_overflow=10, pool_pre_ping=True, connect_args=patience)
    if parsed.database and parsed.database != ":memory:":
        Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
    engine = create_async_engine(parsed, pool_size=1, max_overflow=0, pool_timeout=60, connect_args={"timeout": BUSY_S})
    event.listen(engine.sync_engine, "connect", _prepare_sqlite)
    event.listen(engine.sync_engine, "begin", _begin_sqlite)
    event.listen(engine.sync_engine, "invalidate", _abandon_sqlite)
    return engine


def _parse(url: str) -> URL:
    remedy = "Use sqlite+aiosqlite:///FILE or postgresql+psycopg://USER:PASSWORD@HOST/NAME."
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise InvalidDatabase("The database URL cannot be read.", field="database_url", remedy=remedy) from None
    if parsed.drivername in ("sqlite+aiosqlite", "postgresql+psycopg"):
        return parsed
    raise InvalidDatabase(f"{parsed.drivername} is not a supported database.", field="database_url", remedy=remedy)


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # the driver must not begin transactions of its own: see _begin_sqlite
    cursor = connection.cursor()
    for pragma in (f"busy_timeout={BUSY_S * 1000}", "synchronous=NORMAL", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    _use_wal(connection, cursor)
    cursor.close()


def _use_wal(connection: Any, cursor: Any) -> None:
    """Of several who change a new file's journal mode at the same moment, SQLite refuses some at once, whatever their time-out."""
    last = time.monotonic() + BUSY_S
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > last:
                raise
        connection.run_async(lambda _: asyncio.sleep(0.02))


def _begin_sqlite(connection: Connection) -> None:
    write = connection.get_execution_options().get("shardyard_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _abandon_sqlite(connection: Any, _record: Any, _error: BaseException | None) -> None:
    """Before the connection of a cancelled task is closed: a cursor that is still referred to would keep its lock."""
    with suppress(ValueError, sqlite3.Error):  # it is closed already
        connection.rollback()
