"""System metrics of jobs over time, and of nodes and jobs now."""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "system_samples",
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("width", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("bucket", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("packed", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_system_samples_job_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "width", "bucket", name="pk_system_samples"),
    )
    op.create_table(
        "node_uses",
        sa.Column("node", sa.String(80), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("values", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("node", name="pk_node_uses"),
    )
    op.create_index("ix_node_uses_at", "node_uses", ["at"])
    op.add_column("jobs", sa.Column("resource_use", sa.JSON(none_as_null=True)))


def downgrade() -> None:
    op.drop_column("jobs", "resource_use")
    op.drop_index("ix_node_uses_at", "node_uses")
    op.drop_table("node_uses")
    op.drop_table("system_samples")
