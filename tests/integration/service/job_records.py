"""Rows of every table that has records of jobs."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import JSON, Boolean, Column, Double, Integer, LargeBinary, Table, event, func, select

from shardyard.service.store.engine import Store
from shardyard.service.store.removals import OF_JOBS


async def fill(store: Store, job_id: str, rows: int, tables: Iterable[Table] = OF_JOBS) -> None:
    """Store this number of rows, or one where a job has only one, in each table, beside those that are there."""
    async with store.write() as tx:
        for table in reversed(list(tables)):
            several = len(table.primary_key.columns) > 1
            made = [_row(table, job_id, 1000 + number) for number in range(rows if several else 1)]
            await tx.execute(table.insert(), made)


async def counted(store: Store, job_id: str) -> dict[str, int]:
    """Table → the number of the job's rows, without tables that have none."""
    async with store.read() as tx:
        found = {}
        for table in OF_JOBS:
            mine = select(func.count()).select_from(table).where(table.c.job_id == job_id)
            found[table.name] = int((await tx.execute(mine)).scalar_one())
    return {name: count for name, count in found.items() if count}


@contextmanager
def removed_by_transaction(store: Store) -> Iterator[list[int]]:
    """The number of rows that each transaction deletes meanwhile, also of those that delete none."""
    removed: list[int] = []
    in_transaction: list[int] = []

    def executed(_connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("DELETE"):
            in_transaction.append(cursor.rowcount)

    def committed(_connection: Any) -> None:
        removed.append(sum(in_transaction))
        in_transaction.clear()

    engine = store._engines.writing.sync_engine
    event.listen(engine, "after_cursor_execute", executed)
    event.listen(engine, "commit", committed)
    try:
        yield removed
    finally:
        event.remove(engine, "after_cursor_execute", executed)
        event.remove(engine, "commit", committed)


def _row(table: Table, job_id: str, number: int) -> dict[str, Any]:
    values = {column.name: _value(column, number) for column in table.columns}
    return {**values, "job_id": job_id, **({"settled_at": 1.0} if "settled_at" in table.c else {})}


def _value(column: Column[Any], number: int) -> Any:
    if column.nullable:
        return None
    for kind, value in ((JSON, {}), (Boolean, False), (Double, 1.0), (LargeBinary, b"x"), (Integer, number)):
        if isinstance(column.type, kind):
            return value
    return f"{number}"
