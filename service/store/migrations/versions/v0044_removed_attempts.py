"""The device time of jobs that are removed stays in that of their users, for as long as a range reaches back to it."""

import sqlalchemy as sa
from alembic import op

revision = "0044"
down_revision = "0043"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "removed_attempts",
        sa.Column("job", sa.String(40), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("device", sa.String(8), nullable=False),
        sa.Column("devices", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("job", "number", name="pk_removed_attempts"),
    )
    op.create_index("ix_removed_attempts_ended_at", "removed_attempts", ["ended_at"])


def downgrade() -> None:
    op.drop_table("removed_attempts")
