"""One order of a job: a fault, a trace or an operation on a checkpoint, by its id."""

from sqlalchemy import Table
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from .. import ids
from ..store import orders
from .jobs import existing


async def find(
    tx: AsyncConnection, noun: ids.Kind, table: Table, job: str, text: str
) -> tuple[RowMapping, RowMapping | None]:
    """A job (id or name), and its order of the id `text` if there is one. Raises JobNotFound."""
    found = await existing(tx, job)
    order_id = ids.parse(noun, text)
    return found, None if order_id is None else await orders.by_id(tx, table, found["id"], order_id)
