"""The last stored words: `resharding`, a fault's `delay_ms` and `duration_s`, and two keys of specs."""

from collections.abc import Callable, Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

STATES = {"relayouting": "resharding"}
REASONS = {"relayout": "reshard"}
FAULT = {"by_ms": "delay_ms", "for_s": "duration_s"}
#: Where a spec holds the key, and its names before and after.
SPEC = (("train", "replicas", "replica_check"), ("policy", "hang_s", "hang_timeout_s"))
#: Rows of one read: a database of many jobs is not held in memory.
BATCH = 500


def upgrade() -> None:
    _rename(STATES, REASONS, FAULT, SPEC)


def downgrade() -> None:
    def back(names: dict[str, str]) -> dict[str, str]:
        return {new: old for old, new in names.items()}

    _rename(back(STATES), back(REASONS), back(FAULT), tuple((part, new, old) for part, old, new in SPEC))


def _rename(
    states: dict[str, str], reasons: dict[str, str], fault: dict[str, str], spec: tuple[tuple[str, str, str], ...]
) -> None:
    with op.batch_alter_table("faults") as faults:
        for old, new in fault.items():
            faults.alter_column(old, new_column_name=new)
    tx = op.get_bind()
    jobs = sa.table("jobs", sa.column("id"), sa.column("state"), sa.column("reason"), sa.column("spec", sa.JSON()))
    attempts = sa.table("attempts", sa.column("outcome"))
    for table, column, names in ((jobs, "state", states), (jobs, "reason", reasons), (attempts, "outcome", reasons)):
        for old, new in names.items():
            tx.execute(sa.update(table).where(table.c[column] == old).values({column: new}))
    for row in _batches(tx, sa.select(jobs.c.id, jobs.c.spec).order_by(jobs.c.id), jobs.c.id):
        renamed = _spec(row["spec"], spec)
        if renamed != row["spec"]:
            tx.execute(sa.update(jobs).where(jobs.c.id == row["id"]).values(spec=renamed))
    _events(tx, "state", lambda data: _values(_values(data, "state", states), "reason", reasons))
    _events(tx, "fault", lambda data: {fault.get(key, key): value for key, value in data.items()})


def _events(tx: sa.Connection, kind: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    columns: tuple[Any, ...] = (
        sa.column("job_id"),
        sa.column("position"),
        sa.column("kind"),
        sa.column("data", sa.JSON()),
    )
    events = sa.table("events", *columns)
    where = sa.select(events).where(events.c.kind == kind)
    for row in tx.execute(where).mappings().all():
        renamed = change(row["data"])
        if renamed != row["data"]:
            mine = (events.c.job_id == row["job_id"], events.c.position == row["position"])
            tx.execute(sa.update(events).where(*mine).values(data=renamed))


def _batches(tx: sa.Connection, query: sa.Select[Any], key: Any) -> Iterator[Any]:
    """The rows of a query in the order of its unique key, a batch at a time."""
    last = None
    while True:
        rows = tx.execute((query if last is None else query.where(key > last)).limit(BATCH)).mappings().all()
        yield from rows
        if len(rows) < BATCH:
            return
        last = rows[-1][key.name]


def _spec(spec: dict[str, Any], names: tuple[tuple[str, str, str], ...]) -> dict[str, Any]:
    for part, old, new in names:
        inner = spec.get(part)
        if isinstance(inner, dict) and old in inner:
            spec = {**spec, part: {(new if key == old else key): value for key, value in inner.items()}}
    return spec


def _values(data: dict[str, Any], key: str, names: dict[str, str]) -> dict[str, Any]:
    return data | {key: names.get(str(data.get(key)), data.get(key))} if key in data else data
