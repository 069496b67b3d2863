"""How a database reads what a statement selects."""

from typing import Any

from sqlalchemy import Select, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.dml import ReturningUpdate


async def query_plan(tx: AsyncConnection, statement: Select[*tuple[Any, ...]] | ReturningUpdate[Any]) -> str:
    """The plan of the statement, which PostgreSQL also runs, as text."""
    here = tx.dialect.name == "postgresql"
    dialect = postgresql.dialect() if here else sqlite.dialect()  # type: ignore[no-untyped-call]
    compiled = statement.compile(dialect=dialect, compile_kwargs={"literal_binds": True})
    explained = await tx.execute(text(f"EXPLAIN {'(ANALYZE)' if here else 'QUERY PLAN'} {compiled}"))
    return "\n".join(" ".join(map(str, row)) for row in explained)
