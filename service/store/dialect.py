"""The two things that SQLite and PostgreSQL say differently: an insert that may meet its own row, and the clock.

Leases compare times of the database's clock alone, so that dispatchers whose own clocks differ still agree.
"""

from typing import Any

from sqlalchemy import ColumnElement, Double, Table, literal_column
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection


def insert(tx: AsyncConnection, table: Table) -> postgresql.Insert:
    """An INSERT with `on_conflict_do_nothing` and `on_conflict_do_update`, which both databases spell alike."""
    if tx.dialect.name == "postgresql":
        return postgresql.insert(table)
    lookalike: Any = sqlite.insert(table)
    return lookalike  # type: ignore[no-any-return]


def unix_now(tx: AsyncConnection) -> ColumnElement[float]:
    """Unix seconds by the database's clock."""
    if tx.dialect.name == "postgresql":
        return literal_column("extract(epoch from clock_timestamp())::double precision", Double)
    return literal_column("((julianday('now') - 2440587.5) * 86400.0)", Double)


def unix_begin(tx: AsyncConnection) -> ColumnElement[float]:
    """Unix seconds at the statement's beginning, for which an index can be searched; `unix_now` goes on while a statement waits."""
    if tx.dialect.name == "postgresql":
        return literal_column("extract(epoch from statement_timestamp())::double precision", Double)
    return unix_now(tx)
