"""Jobs are retried, pinned and deleted; `parent` is indexed, so that a job is not removed under those that continue from it."""

import re

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None

#: Rows that one statement changes.
_BATCH = 1000
_DELETED = sa.text("deleted_at IS NOT NULL")
_PARENT = sa.text("parent IS NOT NULL")
_JOB = re.compile(r"job-[0-9a-z]{26}")


def upgrade() -> None:
    for name in ("parent", "retry_of", "retried_by"):
        op.add_column("jobs", sa.Column(name, sa.String(40)))
    for name in ("pinned", "removing"):
        op.add_column("jobs", sa.Column(name, sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("jobs", sa.Column("deleted_at", sa.Double()))
    op.add_column("jobs", sa.Column("deleted_by", sa.Text()))
    _name_parents()
    for name, columns, only in (("deleted", ["deleted_at"], _DELETED), ("parent", ["parent"], _PARENT)):
        op.create_index(f"ix_jobs_{name}", "jobs", columns, sqlite_where=only, postgresql_where=only)
    op.create_index("ix_jobs_finished_at", "jobs", ["finished_at"])


def _name_parents() -> None:
    """Take them from the paths of checkpoints, in batches by id."""
    jobs = sa.table("jobs", sa.column("id"), sa.column("resume"), sa.column("parent"))
    connection, after = op.get_bind(), ""
    wanted = sa.select(jobs.c.id, jobs.c.resume).where(jobs.c.resume.is_not(None)).order_by(jobs.c.id).limit(_BATCH)
    change = sa.update(jobs).where(jobs.c.id == sa.bindparam("of_job")).values(parent=sa.bindparam("named"))
    while rows := connection.execute(wanted.where(jobs.c.id > after)).all():
        after = rows[-1].id
        connection.execute(change, [{"of_job": row.id, "named": _job_in(row.resume)} for row in rows])


def _job_in(path: str) -> str | None:
    """The last part of the path that is a job's id."""
    return next((part for part in reversed(path.split("/")) if _JOB.fullmatch(part)), None)


def downgrade() -> None:
    for name in ("finished_at", "parent", "deleted"):
        op.drop_index(f"ix_jobs_{name}", "jobs")
    for name in ("deleted_by", "deleted_at", "removing", "pinned", "retried_by", "retry_of", "parent"):
        op.drop_column("jobs", name)
