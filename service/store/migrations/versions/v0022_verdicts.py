"""Verdicts are `valid`, `corrupt` and `deleted`; an operation has a `position`; a capacity is `configured`."""

from collections.abc import Iterator, Mapping
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

STATES = {"damaged": "corrupt", "removed": "deleted"}
VERDICTS = {**STATES, "whole": "valid"}
CODES = {"checkpoint_damaged": "checkpoint_corrupt", "checkpoint_removed": "checkpoint_deleted"}
FIELDS = {"damaged": "corrupt", "damaged_files": "corrupt_files"}
#: Rows of one read: a database of many jobs is not held in memory.
BATCH = 500

Names = Mapping[str, str]


def upgrade() -> None:
    with op.batch_alter_table("operations") as operations:
        operations.alter_column("n", new_column_name="position")
    with op.batch_alter_table("capacities") as capacities:
        capacities.alter_column("told", new_column_name="configured")
    _rename(STATES, VERDICTS, CODES, FIELDS)


def downgrade() -> None:
    with op.batch_alter_table("operations") as operations:
        operations.alter_column("position", new_column_name="n")
    with op.batch_alter_table("capacities") as capacities:
        capacities.alter_column("configured", new_column_name="told")
    _rename(*({new: old for old, new in names.items()} for names in (STATES, VERDICTS, CODES, FIELDS)))


def _rename(states: Names, verdicts: Names, codes: Names, fields: Names) -> None:
    tx = op.get_bind()
    checkpoints = sa.table("checkpoints", sa.column("state"))
    for old, new in states.items():
        tx.execute(sa.update(checkpoints).where(checkpoints.c.state == old).values(state=new))
    json = (sa.column("result", sa.JSON(none_as_null=True)), sa.column("error", sa.JSON(none_as_null=True)))
    operations = sa.table("operations", sa.column("job_id", sa.String), sa.column("id", sa.String), *json)
    for row in _batches(tx, sa.select(operations), operations.c.job_id, operations.c.id):
        result, error = row["result"], row["error"]
        if result is not None:
            result = _value({fields.get(key, key): value for key, value in result.items()}, "verdict", verdicts)
        if error is not None:
            error = _value(error, "code", codes)
        if (result, error) != (row["result"], row["error"]):
            mine = (operations.c.job_id == row["job_id"], operations.c.id == row["id"])
            tx.execute(sa.update(operations).where(*mine).values(result=result, error=error))
    events = sa.table(
        "events",
        sa.column("job_id", sa.String),
        sa.column("position", sa.BigInteger),
        sa.column("kind"),
        sa.column("data", sa.JSON()),
    )
    incidents = sa.select(events).where(events.c.kind == "incident")
    for row in _batches(tx, incidents, events.c.job_id, events.c.position):
        renamed = _value(row["data"], "cause", codes)
        if renamed != row["data"]:
            mine = (events.c.job_id == row["job_id"], events.c.position == row["position"])
            tx.execute(sa.update(events).where(*mine).values(data=renamed))


def _batches(tx: sa.Connection, query: sa.Select[Any], *key: Any) -> Iterator[Any]:
    """The rows of a query in the order of its unique key, a batch at a time."""
    last: tuple[Any, ...] | None = None
    query = query.order_by(*key).limit(BATCH)
    while True:
        after = None if last is None else sa.tuple_(*last, types=[column.type for column in key])
        rows = tx.execute(query if after is None else query.where(sa.tuple_(*key) > after)).mappings().all()
        yield from rows
        if len(rows) < BATCH:
            return
        last = tuple(rows[-1][column.name] for column in key)


def _value(data: dict[str, Any], key: str, names: Names) -> dict[str, Any]:
    return data | {key: names.get(str(data.get(key)), data.get(key))} if key in data else data
