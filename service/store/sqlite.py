"""SQLite's connections: WAL, one connection that writes, and a few that only read and never wait for it.

A second writing connection brings no throughput and twenty times the worst latency. A reader sees what was committed when it began.
`BEGIN IMMEDIATE` opens a write, so that it never fails half-way because it cannot get the lock. A connection is not used after its
file was replaced (for example by a restored backup): the next transaction opens the new file.
"""

import asyncio
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import quote

import aiosqlite
from sqlalchemy import event
from sqlalchemy.engine import URL, Connection
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

#: Seconds for which SQLite waits for another process' write before it gives up.
BUSY_S: Final = 30

#: Seconds for which a statement of a cancelled task may continue.
_PATIENCE_S: Final = 0.1

Use = Literal["create", "write", "read"]


def engine(url: URL, use: Use, connections: int = 1) -> AsyncEngine:
    """An engine of at most `connections` connections. Only `create` makes a missing file and its folder."""
    file = Path(url.database or "").absolute()
    if use == "create":
        file.parent.mkdir(parents=True, exist_ok=True)
    mode = {"mode": "rwc" if use == "create" else "rw", "uri": "true"}
    opened = url.set(database=f"file:{quote(str(file))}").update_query_dict(mode)
    made = create_async_engine(
        opened, pool_size=connections, max_overflow=0, pool_timeout=BUSY_S, connect_args={"timeout": BUSY_S}
    )
    hooks = _Hooks(file, use)
    for name in ("do_connect", "connect", "checkout", "begin", "invalidate"):
        event.listen(made.sync_engine, name, getattr(hooks, name))
    return made


class _Hooks:
    """Hooks that SQLAlchemy calls in a connection's life."""

    def __init__(self, file: Path, use: Use) -> None:
        self._file, self._use = file, use

    def do_connect(self, _dialect: Any, _record: Any, arguments: Any, options: Any) -> None:
        """Raises the error of opening the file before a thread exists for the connection, which could outlive the event loop."""
        sqlite3.connect(*arguments, **options).close()

    def connect(self, connection: Any, record: Any) -> None:
        record.info["file"] = _identity(self._file)
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()  # the pool drops it, but its thread would stay
            raise

    def _prepare(self, connection: Any) -> None:
        connection.isolation_level = None  # the driver must not begin transactions of its own: see `begin`
        cursor = connection.cursor()
        for pragma in (f"busy_timeout={BUSY_S * 1000}", "synchronous=NORMAL", "foreign_keys=ON"):
            cursor.execute(f"PRAGMA {pragma}")
        if self._use == "read":
            cursor.execute("PRAGMA query_only=ON")
        else:
            _use_wal(connection, cursor)
        cursor.close()

    def checkout(self, _connection: Any, record: Any, _proxy: Any) -> None:
        """A connection to a replaced file would write to the old one. Raises DisconnectionError: the pool opens a new one."""
        if record.info["file"] != _identity(self._file):
            raise DisconnectionError("another file has replaced the database's file")

    def begin(self, connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN" if self._use == "read" else "BEGIN IMMEDIATE")

    def invalidate(self, connection: Any, _record: Any, _error: BaseException | None) -> None:
        """Called before a cancelled task's connection is closed: a cursor that is still referenced would keep its lock."""
        with suppress(ValueError, sqlite3.Error):  # it is closed already
            if self._use == "read":
                connection.run_async(_end_reading)
            else:
                connection.rollback()


async def _end_reading(driver: aiosqlite.Connection) -> None:
    """Roll back after the running statement, which is interrupted if it takes long.

    Never on a connection that writes: while a statement has more rows to return, an interrupted connection cannot roll back, and its
    lock would stay.
    """
    rolling = asyncio.ensure_future(driver.rollback())
    rolling.add_done_callback(lambda done: done.cancelled() or done.exception())
    try:
        while not (await asyncio.wait({rolling}, timeout=_PATIENCE_S))[0]:
            await driver.interrupt()  # again and again: it has no effect on a statement that is yet to begin
    finally:
        if not rolling.done():
            await driver.interrupt()
    await rolling


def _identity(file: Path) -> tuple[int, int] | None:
    try:
        facts = file.stat()
    except OSError:
        return None
    return facts.st_dev, facts.st_ino


def _use_wal(connection: Any, cursor: Any) -> None:
    """Switch the file to WAL.

    If several connections switch a new file at the same moment, SQLite refuses some at once, without regard to their time-out.
    """
    last = time.monotonic() + BUSY_S
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > last:
                raise
        connection.run_async(lambda _: asyncio.sleep(0.02))
