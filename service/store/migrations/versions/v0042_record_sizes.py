"""The sizes of logs and traces are counted where they are stored. A sweep counts the lines that are there already."""

import sqlalchemy as sa
from alembic import op

revision = "0042"
down_revision = "0041"
branch_labels = None
depends_on = None

_COUNT_LINES_LATER = (
    "INSERT INTO log_sizes (job_id, bytes, uncounted) SELECT id, 0, log_pos FROM jobs WHERE log_pos > 0"
)
_COUNT_PARTS = """
UPDATE traces SET bytes = (
    SELECT coalesce(sum(length(body)), 0) FROM trace_parts
    WHERE trace_parts.job_id = traces.job_id AND trace_parts.trace_id = traces.id
)
"""


def upgrade() -> None:
    op.create_table(
        "log_sizes",
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("uncounted", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_log_sizes_job_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", name="pk_log_sizes"),
    )
    op.execute(_COUNT_LINES_LATER)
    op.add_column("traces", sa.Column("bytes", sa.BigInteger(), nullable=False, server_default="0"))
    op.execute(_COUNT_PARTS)


def downgrade() -> None:
    op.drop_column("traces", "bytes")
    op.drop_table("log_sizes")
