"""A sweep keeps the job with whose checkpoint its trials begin from being deleted."""

import re
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0047"
down_revision = "0046"
branch_labels = None
depends_on = None

_OPEN = sa.text("finished_at IS NULL")
_JOB = re.compile(r"job-[0-9a-z]{26}")
#: Sweeps of one read: a spec has at most 1 MiB.
_BATCH = 20


def upgrade() -> None:
    op.add_column("sweeps", sa.Column("parent", sa.String(40)))
    _name_parents()
    op.create_index("ix_sweeps_parent", "sweeps", ["parent"], sqlite_where=_OPEN, postgresql_where=_OPEN)


def downgrade() -> None:
    op.drop_index("ix_sweeps_parent", "sweeps")
    op.drop_column("sweeps", "parent")


def _name_parents() -> None:
    """Take those of open sweeps from the paths in their specs. A version of a model keeps its job itself."""
    columns = (sa.column("id", sa.String), sa.column("spec", sa.JSON), sa.column("parent", sa.String))
    sweeps = sa.table("sweeps", *columns, sa.column("finished_at", sa.Double))
    connection, after = op.get_bind(), ""
    wanted = sa.select(sweeps.c.id, sweeps.c.spec).where(sweeps.c.finished_at.is_(None)).order_by(sweeps.c.id)
    while rows := connection.execute(wanted.where(sweeps.c.id > after).limit(_BATCH)).all():
        after = rows[-1].id
        for row in rows:
            if (parent := _parent(row.spec)) is not None:
                connection.execute(sa.update(sweeps).where(sweeps.c.id == row.id).values(parent=parent))


def _parent(spec: dict[str, Any]) -> str | None:
    """The last part of the path that is a job's id."""
    part = spec.get("train", spec)
    path = part.get("resume_from") if isinstance(part, dict) else None
    return next((one for one in reversed(str(path).split("/")) if _JOB.fullmatch(one)), None) if path else None
