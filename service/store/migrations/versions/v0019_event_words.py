"""Events in their final words: kinds, fields and causes as `workers/messages/event.py` has them."""

import json
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

_KINDS = {"traced": "trace_finished", "relayout": "reshard"}
_FIELDS = {"own_s": "busy_s", "waited_s": "wait_s"}
_CAUSES = {"replicas_differ": "replica_mismatch"}
_BATCH = 500


def upgrade() -> None:
    _rename(_KINDS, _FIELDS, _CAUSES)


def downgrade() -> None:
    _rename(*({new: old for old, new in names.items()} for names in (_KINDS, _FIELDS, _CAUSES)))


def _rename(kinds: Mapping[str, str], fields: Mapping[str, str], causes: Mapping[str, str]) -> None:
    tx = op.get_bind()
    columns = (("events", "kind", kinds), ("jobs", "reason", causes), ("attempts", "outcome", causes))
    for table, column, names in (*columns, ("node_faults", "cause", causes)):
        place = sa.table(table, sa.column(column))
        for old, new in names.items():
            tx.execute(sa.update(place).where(place.c[column] == old).values({column: new}))
    _rename_in_events(tx, fields, causes)
    _rename_in_samples(tx, fields)


def _rename_in_events(tx: sa.Connection, fields: Mapping[str, str], causes: Mapping[str, str]) -> None:
    named = ("job_id", "position", "kind")
    events = sa.table("events", *(sa.column(name) for name in named), sa.column("data", sa.JSON()))

    def renamed(data: dict[str, Any]) -> dict[str, Any]:
        new = {fields.get(name, name): value for name, value in data.items()}
        return new | {name: causes[new[name]] for name in ("cause", "reason") if new.get(name) in causes}

    kinds = ("state", "probe", "incident", "repair")
    _rewrite(tx, events, "data", renamed, events.c.kind.in_(kinds))


def _rename_in_samples(tx: sa.Connection, fields: Mapping[str, str]) -> None:
    samples = sa.table(
        "rank_samples", sa.column("job_id"), sa.column("position"), sa.column("packed", sa.LargeBinary())
    )

    def renamed(packed: bytes) -> bytes:
        lists = json.loads(zlib.decompress(packed))
        new = {fields.get(name, name): value for name, value in lists.items()}
        return packed if new == lists else zlib.compress(json.dumps(new, separators=(",", ":")).encode())

    _rewrite(tx, samples, "packed", renamed, sa.true())


def _rewrite(
    tx: sa.Connection, table: Any, column: str, renamed: Callable[[Any], Any], which: sa.ColumnElement[bool]
) -> None:
    """Give `column` of these rows its new value. Reads some rows at a time, in the order of their key."""
    key = (table.c.job_id, table.c.position)
    after: tuple[str, int] = ("", -1)
    while True:
        rest = sa.tuple_(*key) > sa.tuple_(sa.literal(after[0]), sa.literal(after[1]))
        statement = sa.select(*key, table.c[column]).where(which, rest).order_by(*key).limit(_BATCH)
        rows = tx.execute(statement).all()
        if not rows:
            return
        for job_id, position, value in rows:
            new = renamed(value)
            if new != value:
                mine = (table.c.job_id == job_id, table.c.position == position)
                tx.execute(sa.update(table).where(*mine).values({column: new}))
        after = (rows[-1][0], rows[-1][1])
