"""Translates a driver's errors into kinds of `DatabaseError`: the same kinds for SQLite and PostgreSQL.

Errors of a statement (a constraint, a syntax error) are not errors of the database: they are bugs, or handled by the caller.
"""

import os
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, ProgrammingError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from ..database_errors import (
    DatabaseBusy,
    DatabaseCorrupt,
    DatabaseDenied,
    DatabaseError,
    DatabaseFull,
    DatabaseMissing,
    DatabaseReadOnly,
    DatabaseUnreachable,
    SchemaDamaged,
)
from ..errors import InvalidDatabase

Kind = type[DatabaseError]

#: A disk with less room than this is full: SQLite reports an I/O error if the index of its WAL cannot grow.
_FULL_BYTES: Final = 1 << 20

#: https://sqlite.org/rescode.html, by primary code (the low byte).
_SQLITE: Final[dict[int, Kind]] = {
    sqlite3.SQLITE_PERM: DatabaseDenied,
    sqlite3.SQLITE_BUSY: DatabaseBusy,
    sqlite3.SQLITE_LOCKED: DatabaseBusy,
    sqlite3.SQLITE_NOMEM: DatabaseBusy,
    sqlite3.SQLITE_READONLY: DatabaseReadOnly,
    sqlite3.SQLITE_INTERRUPT: DatabaseBusy,
    sqlite3.SQLITE_IOERR: DatabaseError,
    sqlite3.SQLITE_CORRUPT: DatabaseCorrupt,
    sqlite3.SQLITE_FULL: DatabaseFull,
    sqlite3.SQLITE_PROTOCOL: DatabaseBusy,
    sqlite3.SQLITE_SCHEMA: DatabaseBusy,
    sqlite3.SQLITE_AUTH: DatabaseDenied,
    sqlite3.SQLITE_NOTADB: DatabaseCorrupt,
}
_SQLITE_NO_TABLE: Final = re.compile(r"no such (table|column)|has no column named")

#: https://www.postgresql.org/docs/current/errcodes-appendix.html: a code, or the two letters of its class.
_POSTGRESQL: Final[dict[str, Kind]] = {
    "08": DatabaseUnreachable,
    "25006": DatabaseReadOnly,
    "25P03": DatabaseBusy,
    "25P04": DatabaseBusy,
    "28": DatabaseDenied,
    "3D": DatabaseMissing,
    "3F": SchemaDamaged,
    "40": DatabaseBusy,
    "42501": DatabaseDenied,
    "42703": SchemaDamaged,
    "42P01": SchemaDamaged,
    "53": DatabaseBusy,
    "53100": DatabaseFull,
    "55P03": DatabaseBusy,
    "57": DatabaseUnreachable,
    "57014": DatabaseBusy,
    "58": DatabaseError,
    "F0": DatabaseError,
    "XX": DatabaseError,
    "XX001": DatabaseCorrupt,
    "XX002": DatabaseCorrupt,
}
#: When a connection is refused, libpq returns no code, only the server's message. In another language it counts as unreachable.
_REFUSALS: Final[tuple[tuple[re.Pattern[str], Kind], ...]] = (
    (re.compile(r"too many (clients|connections)|remaining connection slots"), DatabaseBusy),
    (re.compile(r'FATAL: +database ".*" does not exist'), DatabaseMissing),
    (
        re.compile(
            r'authentication failed|no password supplied|FATAL: +role ".*" |no pg_hba\.conf entry|permission denied for database'
        ),
        DatabaseDenied,
    ),
)
_CREATE_IT: Final = (
    "Operators: create it (createdb NAME, then: shardyard migrate), or name the right one in SHARDYARD_DATABASE_URL."
)


def explained(error: SQLAlchemyError, url: URL) -> DatabaseError | None:
    """The `DatabaseError` that `error` means for the database at `url`; None if it is not an error of the database."""
    if isinstance(error, PoolTimeout):
        return DatabaseBusy("every connection of this process is in use")
    if not isinstance(error, DBAPIError) or error.orig is None:
        return None
    detail = " ".join(str(error.orig).split())[:400]
    if isinstance(error.orig, sqlite3.Error):
        kind = _of_sqlite(error.orig, Path(url.database or ""))
        return None if kind is None else kind(detail)
    kind = _of_postgresql(error, error.orig)
    return None if kind is None else kind(detail, cure=_CREATE_IT if kind is DatabaseMissing else None)


@contextmanager
def translated(url: URL) -> Iterator[None]:
    """Raises the `DatabaseError` for a driver's error in the body."""
    try:
        yield
    except SQLAlchemyError as error:
        known = explained(error, url)
        if known is None:
            raise
        raise known from error


def _of_sqlite(error: sqlite3.Error, file: Path) -> Kind | None:
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:  # the connection was closed while in use
        return DatabaseUnreachable
    primary = code & 0xFF
    if primary == sqlite3.SQLITE_ERROR:
        return SchemaDamaged if _SQLITE_NO_TABLE.search(str(error)) else None
    if primary == sqlite3.SQLITE_CANTOPEN:
        return _of_unopened(file)
    if primary == sqlite3.SQLITE_IOERR and _is_full(file.parent):
        return DatabaseFull
    return _SQLITE.get(primary)


def _of_unopened(file: Path) -> Kind:
    """The kind for a file that cannot be opened. Even to be read, a file in WAL mode needs another one beside it."""
    if not file.exists():
        return DatabaseMissing
    readable = file.is_file() and os.access(file, os.R_OK)
    return DatabaseReadOnly if readable and not os.access(file.parent, os.W_OK) else DatabaseDenied


def _is_full(folder: Path) -> bool:
    try:
        return shutil.disk_usage(folder).free < _FULL_BYTES
    except OSError:
        return False


def _of_postgresql(error: DBAPIError, cause: Any) -> Kind | None:
    state = getattr(cause, "sqlstate", None)
    if state is not None:
        return _POSTGRESQL.get(state) or _POSTGRESQL.get(state[:2])
    message = str(cause)
    if isinstance(error, ProgrammingError) and "connection option" in message:  # libpq has not reached the server yet
        raise InvalidDatabase(
            f"The database URL cannot be used: {message.splitlines()[0]}.",
            field="SHARDYARD_DATABASE_URL",
            remedy="Leave the option out. Options after ? are those of libpq, such as sslmode=require.",
        )
    if not isinstance(error, (OperationalError, InterfaceError)):
        return None
    return next((kind for pattern, kind in _REFUSALS if pattern.search(message)), DatabaseUnreachable)
