"""SQL that differs between SQLite and PostgreSQL: inserts with conflicts, the clock, a text's bytes and searching in it.

Leases use only times of the database's clock, so that dispatchers whose own clocks differ still agree.
"""

import string
from typing import Any, Final

from sqlalchemy import ColumnElement, Double, LargeBinary, Table, cast, collate, func, literal_column, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

_LOWER: Final = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def insert(tx: AsyncConnection, table: Table) -> postgresql.Insert:
    """An INSERT with `on_conflict_do_nothing` and `on_conflict_do_update`, which both databases write alike."""
    return insert_into(tx.dialect.name, table)


def insert_into(dialect: str, table: Table) -> postgresql.Insert:
    """The same by the dialect's name, for a statement that is built only once."""
    if dialect == "postgresql":
        return postgresql.insert(table)
    lookalike: Any = sqlite.insert(table)
    return lookalike  # type: ignore[no-any-return]


def unix_now(tx: AsyncConnection) -> ColumnElement[float]:
    """Unix seconds by the database's clock."""
    if tx.dialect.name == "postgresql":
        return literal_column("extract(epoch from clock_timestamp())::double precision", Double)
    return literal_column("((julianday('now') - 2440587.5) * 86400.0)", Double)


def unix_begin(tx: AsyncConnection) -> ColumnElement[float]:
    """Unix seconds at the statement's beginning, for which an index can be searched; `unix_now` advances while a statement waits."""
    if tx.dialect.name == "postgresql":
        return literal_column("extract(epoch from statement_timestamp())::double precision", Double)
    return unix_now(tx)


async def limit_lock_wait(tx: AsyncConnection, seconds: float) -> None:
    """Let this transaction wait at most `seconds` for each lock. On SQLite one process writes at a time, and no row has a lock."""
    if tx.dialect.name == "postgresql":
        await tx.execute(select(func.set_config("lock_timeout", f"{max(1, round(1000 * seconds))}ms", True)))


def ascii_lower(tx: AsyncConnection, text: ColumnElement[str]) -> ColumnElement[str]:
    """`text` with A to Z in lower case and all other characters unchanged, whatever the database's locale."""
    if tx.dialect.name == "postgresql":
        return func.lower(collate(text, "C"))
    return func.lower(text)


def lowered(text: str) -> str:
    """What `ascii_lower` makes of `text`."""
    return text.translate(_LOWER)


def contains(tx: AsyncConnection, text: ColumnElement[str], part: str) -> ColumnElement[bool]:
    """Whether `text` contains `part`, literally. LIKE takes time in proportion to the product of both lengths: seconds for long lines."""
    find = func.strpos if tx.dialect.name == "postgresql" else func.instr
    found: ColumnElement[bool] = find(text, part) > 0
    return found


def octets(tx: AsyncConnection, text: ColumnElement[str]) -> ColumnElement[int]:
    """Bytes of `text` in UTF-8."""
    if tx.dialect.name == "postgresql":
        return func.octet_length(text)
    return func.length(cast(text, LargeBinary))
