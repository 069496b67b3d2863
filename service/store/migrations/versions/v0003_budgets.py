"""Jobs count what they used of each budget, and wait for their next try."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_COUNTS = ("max_retries", "retries", "repairs", "setbacks")


def upgrade() -> None:
    for name in _COUNTS:
        op.add_column("jobs", sa.Column(name, sa.Integer(), server_default="0", nullable=False))
    op.add_column("jobs", sa.Column("furthest", sa.BigInteger(), server_default="0", nullable=False))
    op.add_column("jobs", sa.Column("retry_at", sa.Double(), server_default="0", nullable=False))
    op.add_column("attempts", sa.Column("error", sa.String(length=64), nullable=True))
    op.create_index(op.f("ix_jobs_state_id_retry_at"), "jobs", ["state", "id", "retry_at"], unique=False)
    op.drop_index(op.f("ix_jobs_state_id"), table_name="jobs")


def downgrade() -> None:
    op.create_index(op.f("ix_jobs_state_id"), "jobs", ["state", "id"], unique=False)
    op.drop_index(op.f("ix_jobs_state_id_retry_at"), table_name="jobs")
    op.drop_column("attempts", "error")
    for name in (*_COUNTS, "furthest", "retry_at"):
        op.drop_column("jobs", name)
