"""Access to the database: one `Store` per process; its transactions wait only for the database.

Every driver's error leaves this module as a `DatabaseError`, and is logged only here: once a minute per cause, and once when it is over.
"""

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from sqlalchemy import text
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ..database_errors import DatabaseError, DatabaseFull, DatabaseReadOnly, SchemaDamaged
from ..database_url import parse, shown
from ..failure_log import FailureLog
from ..search_errors import TooManySearches
from . import postgresql, sqlite
from .driver_errors import explained
from .revision import RevisionCheck

log = logging.getLogger(__name__)

#: Connections of a process for reading SQLite, so that one long read does not block others.
READERS: Final = 2
#: Searches that a process runs at once, each on a connection of its own; others wait for their turn. SQLite searches in this process:
#: on two cores, two searches find no more in a second than one, and leave no core for lists.
SEARCHES: Final = 2 if len(os.sched_getaffinity(0)) > 2 else 1
#: Seconds for which a search waits for its turn.
SEARCH_TURN_S = 10.0
#: Seconds for which a write refused for lack of space or rights marks the database as not writable.
_UNWRITABLE_S: Final = 60.0
#: Errors that reads may not show: only a successful write proves that they are over.
_WRITES_ONLY: Final = (DatabaseReadOnly, DatabaseFull)


@dataclass(frozen=True)
class _Engines:
    """PostgreSQL has one pool for reads and writes."""

    writing: AsyncEngine
    reading: AsyncEngine
    searching: AsyncEngine


class Store:
    """Opens transactions. They commit at their end and roll back if their body raises.

    All raise a `DatabaseError` if the database cannot serve, or its schema is not this version's; then they read and write nothing.
    """

    def __init__(self, url: str) -> None:
        """Does not connect yet. Raises InvalidDatabase."""
        self._url = parse(url)
        self._engines = _engines(self._url)
        self._revision = RevisionCheck()
        self._failures = FailureLog(log)
        self._searches = asyncio.Semaphore(SEARCHES)
        self._refused: tuple[float, DatabaseError] | None = None  # when a write was refused, and why

    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`."""
        return self._engines.writing.dialect.name

    @property
    def unwritable(self) -> DatabaseError | None:
        """Why the last write was refused, if that was recently and for lack of space or rights."""
        if self._refused is None or time.monotonic() - self._refused[0] > _UNWRITABLE_S:
            return None
        return self._refused[1]

    def read(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """A transaction that only reads."""
        return self._transaction(self._engines.reading)

    def write(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """A transaction that may write."""
        return self._transaction(self._engines.writing, writes=True)

    @asynccontextmanager
    async def search(self, limit_s: float) -> AsyncIterator[AsyncConnection]:
        """A transaction that only reads, for queries that may take seconds: others do not wait for it.

        Raises TooManySearches, and TimeoutError when it is interrupted after `limit_s`.
        """
        try:
            async with asyncio.timeout(SEARCH_TURN_S):
                await self._searches.acquire()
        except TimeoutError:
            raise TooManySearches from None
        try:
            async with self._transaction(self._engines.searching) as tx, asyncio.timeout(limit_s):
                if self.dialect == "postgresql":  # in case the cancellation of a statement does not reach the server
                    await tx.execute(text(f"SET LOCAL statement_timeout = {int(limit_s * 1000) + 1000}"))
                yield tx
        finally:
            self._searches.release()

    async def check(self) -> None:
        """Raises the DatabaseError that prevents this version from using its database."""
        async with self.read():
            return

    def failed(self, error: DatabaseError) -> None:
        """Log a failure. Transactions of this store do so themselves."""
        detail = f" {error.detail}" if error.detail else ""
        where = shown(self._url)
        self._failures.failed(error.code, f"{error.message} [{error.code}, {where}]{detail}")

    async def close(self) -> None:
        for engine in {self._engines.writing, self._engines.reading, self._engines.searching}:
            await engine.dispose()

    @asynccontextmanager
    async def _transaction(self, engine: AsyncEngine, *, writes: bool = False) -> AsyncIterator[AsyncConnection]:
        try:
            async with engine.begin() as tx:
                await self._revision.check(tx)
                yield tx
        except SQLAlchemyError as error:
            known = explained(error, self._url)
            if known is None:
                raise
            if isinstance(known, SchemaDamaged):
                known = await self._misfit(engine) or known
            self._note(known, writes)
            raise known from error
        except DatabaseError as error:
            self._note(error, writes)
            raise
        if writes:
            self._refused = None
        self._works(writes)

    async def _misfit(self, engine: AsyncEngine) -> DatabaseError | None:
        """The error of the schema's revision, if a missing table is due to a migration since the last check."""
        self._revision.forget()
        try:
            async with engine.begin() as tx:
                await self._revision.check(tx)
        except DatabaseError as error:
            return error
        except SQLAlchemyError as error:
            return explained(error, self._url)
        return None

    def _note(self, error: DatabaseError, writes: bool) -> None:
        if writes and isinstance(error, _WRITES_ONLY):
            self._refused = time.monotonic(), error
        self.failed(error)

    def _works(self, writes: bool) -> None:
        for cause in self._failures.failing:
            if writes or cause not in {kind.code for kind in _WRITES_ONLY}:
                self._failures.works(cause, f"The database works again [{cause}].")


def writing_engine(url: URL) -> AsyncEngine:
    """An engine for migrations, which creates missing files and waits for locks as long as it takes."""
    return (
        postgresql.engine(url, 1, limited=False)
        if url.drivername.startswith("postgresql")
        else sqlite.engine(url, "create")
    )


def _engines(url: URL) -> _Engines:
    if url.drivername.startswith("postgresql"):
        both = postgresql.engine(url, 10, 10)
        # What one transaction reads is of one moment, as on SQLite: a job's cursor belongs to the curve that is read after it.
        reading = both.execution_options(isolation_level="REPEATABLE READ")
        return _Engines(both, reading, postgresql.engine(url, SEARCHES))
    reading, searching = (sqlite.engine(url, "read", connections) for connections in (READERS, SEARCHES))
    return _Engines(sqlite.engine(url, "write"), reading, searching)
