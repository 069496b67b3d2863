"""Faults that users ask for."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "faults",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=True),
        sa.Column("by_ms", sa.Double(), nullable=True),
        sa.Column("for_s", sa.Double(), nullable=True),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("asked_at", sa.Double(), nullable=False),
        sa.Column("settled_at", sa.Double(), nullable=True),
        sa.Column("idempotency_key", sa.String(length=255), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_faults_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "id", name=op.f("pk_faults")),
        sa.UniqueConstraint("job_id", "idempotency_key", name=op.f("uq_faults_job_id_idempotency_key")),
    )


def downgrade() -> None:
    op.drop_table("faults")
