"""Nodes are blamed for faults, and cordoned."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "node_faults",
        sa.Column("node", sa.String(length=80), nullable=False),
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("cause", sa.String(length=64), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_node_faults_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("node", "job_id", "attempt", name=op.f("pk_node_faults")),
    )
    op.create_index(op.f("ix_node_faults_at"), "node_faults", ["at"], unique=False)
    op.create_table(
        "cordons",
        sa.Column("node", sa.String(length=80), nullable=False),
        sa.Column("since", sa.Double(), autoincrement=False, nullable=False),
        sa.Column("until", sa.Double(), nullable=True),
        sa.Column("by_hand", sa.Boolean(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("ended_by", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("node", "since", name=op.f("pk_cordons")),
    )
    op.create_index(op.f("ix_cordons_since"), "cordons", ["since"], unique=False)


def downgrade() -> None:
    op.drop_table("cordons")
    op.drop_table("node_faults")
