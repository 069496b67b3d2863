"""What users have the cluster do with checkpoints."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "operations",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("n", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("out", sa.Text(), nullable=True),
        sa.Column("dtype", sa.String(length=8), nullable=True),
        sa.Column("state", sa.String(length=8), nullable=False),
        sa.Column("result", sa.JSON(), nullable=True),
        sa.Column("error", sa.JSON(), nullable=True),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("asked_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("settled_at", sa.Double(), nullable=True),
        sa.Column("tries", sa.Integer(), server_default="0", nullable=False),
        sa.Column("lease_owner", sa.Text(), nullable=True),
        sa.Column("lease_token", sa.String(length=40), nullable=True),
        sa.Column("free_at", sa.Double(), server_default="0", nullable=False),
        sa.Column("idempotency_key", sa.String(length=255), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_operations_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "id", name=op.f("pk_operations")),
        sa.UniqueConstraint("job_id", "idempotency_key", name=op.f("uq_operations_job_id_idempotency_key")),
    )
    is_open = sa.text("settled_at IS NULL")
    op.create_index("ix_operations_open", "operations", ["id"], sqlite_where=is_open, postgresql_where=is_open)


def downgrade() -> None:
    op.drop_table("operations")
