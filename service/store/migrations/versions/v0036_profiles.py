"""Users profile ranks, and run commands beside them."""

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "profiles",
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("seconds", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(8), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("asked_at", sa.Double(), nullable=False),
        sa.Column("settled_at", sa.Double()),
        sa.Column("message", sa.Text()),
        sa.Column("file", sa.String(400)),
        sa.Column("idempotency_key", sa.String(255)),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_profiles_job_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "id", name="pk_profiles"),
        sa.UniqueConstraint("job_id", "idempotency_key", name="uq_profiles_job_id_idempotency_key"),
    )
    op.create_table(
        "execs",
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("command", sa.JSON(), nullable=False),
        sa.Column("seconds", sa.Integer(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("asked_at", sa.Double(), nullable=False),
        sa.Column("settled_at", sa.Double()),
        sa.Column("status", sa.Integer()),
        sa.Column("message", sa.Text()),
        sa.Column("idempotency_key", sa.String(255)),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_execs_job_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "id", name="pk_execs"),
        sa.UniqueConstraint("job_id", "idempotency_key", name="uq_execs_job_id_idempotency_key"),
    )


def downgrade() -> None:
    op.drop_table("execs")
    op.drop_table("profiles")
