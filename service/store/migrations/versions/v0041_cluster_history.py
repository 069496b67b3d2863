"""Clusters have a history: what they and their nodes used, which attempts were on which nodes, and when nodes joined and were lost."""

import sqlalchemy as sa
from alembic import op

revision = "0041"
down_revision = "0040"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "cluster_samples",
        sa.Column("cluster", sa.String(63), nullable=False),
        sa.Column("node", sa.String(80), nullable=False),
        sa.Column("width", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("bucket", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("packed", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "node", "width", "bucket", name="pk_cluster_samples"),
    )
    op.create_index("ix_cluster_samples_width_bucket", "cluster_samples", ["width", "bucket"])
    op.create_table(
        "gang_nodes",
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("node", sa.String(80), nullable=False),
        sa.Column("cpu", sa.Double(), nullable=False),
        sa.Column("gpu", sa.Double(), nullable=False),
        sa.Column("since", sa.Double(), nullable=False),
        sa.Column("until", sa.Double()),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_gang_nodes_job_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "attempt", "node", name="pk_gang_nodes"),
    )
    op.create_index("ix_gang_nodes_until", "gang_nodes", ["until"])
    op.create_index("ix_gang_nodes_node_until", "gang_nodes", ["node", "until"])
    op.create_table(
        "node_changes",
        sa.Column("cluster", sa.String(63), nullable=False),
        sa.Column("node", sa.String(80), nullable=False),
        sa.Column("at", sa.Double(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "node", "at", name="pk_node_changes"),
    )
    op.create_index("ix_node_changes_at", "node_changes", ["at"])
    op.create_index("ix_attempts_ended_at_job_id_number", "attempts", ["ended_at", "job_id", "number"])


def downgrade() -> None:
    op.drop_index("ix_attempts_ended_at_job_id_number", "attempts")
    op.drop_table("node_changes")
    op.drop_table("gang_nodes")
    op.drop_table("cluster_samples")
