"""A job that changes its layout is `relayouting`, with the reason `relayout`: it was told as `preempting` and `preempted`."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

STATE = {"preempting": "relayouting"}
REASON = {"preempted": "relayout"}


def upgrade() -> None:
    _rename(STATE, REASON)


def downgrade() -> None:
    _rename({new: old for old, new in STATE.items()}, {})  # `relayout` was a reason before, too


def _rename(states: dict[str, str], reasons: dict[str, str]) -> None:
    tx = op.get_bind()
    jobs = sa.table("jobs", sa.column("state"), sa.column("reason"))
    attempts = sa.table("attempts", sa.column("outcome"))
    for table, column, names in ((jobs, "state", states), (jobs, "reason", reasons), (attempts, "outcome", reasons)):
        for old, new in names.items():
            tx.execute(sa.update(table).where(table.c[column] == old).values({column: new}))
    events = sa.table(
        "events", sa.column("job_id"), sa.column("position"), sa.column("kind"), sa.column("data", sa.JSON())
    )
    told = tx.execute(sa.select(events).where(events.c.kind == "state")).mappings().all()
    for row in told:
        data: dict[str, Any] = row["data"]
        state, reason = str(data.get("state")), data.get("reason")
        named = data | {"state": states.get(state, state), "reason": reasons.get(str(reason), reason)}
        if named != data:
            mine = (events.c.job_id == row["job_id"], events.c.position == row["position"])
            tx.execute(sa.update(events).where(*mine).values(data=named))
