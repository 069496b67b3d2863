"""A job's spec may say for how long its records are kept."""

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None

_RETENTION = sa.text("retention IS NOT NULL")


def upgrade() -> None:
    op.add_column("jobs", sa.Column("retention", sa.JSON(none_as_null=True)))
    op.create_index(
        "ix_jobs_retention",
        "jobs",
        ["state", "id", "finished_at"],
        sqlite_where=_RETENTION,
        postgresql_where=_RETENTION,
    )


def downgrade() -> None:
    op.drop_index("ix_jobs_retention", "jobs")
    op.drop_column("jobs", "retention")
