"""Sweeps and their trials."""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "sweeps",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("message", sa.Text()),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("sweep", sa.JSON(), nullable=False),
        sa.Column("trials", sa.Integer(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("idempotency_key", sa.String(255)),
        sa.Column("body_hash", sa.String(128)),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("finished_at", sa.Double()),
        sa.Column("lease_token", sa.String(40)),
        sa.Column("free_at", sa.Double(), nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("id", name="pk_sweeps"),
        sa.UniqueConstraint("idempotency_key", name="uq_sweeps_idempotency_key"),
    )
    op.create_index("ix_sweeps_name_id", "sweeps", ["name", "id"])
    is_open = sa.text("finished_at IS NULL")
    op.create_index("ix_sweeps_open", "sweeps", ["id"], sqlite_where=is_open, postgresql_where=is_open)
    op.create_table(
        "trials",
        sa.Column("sweep_id", sa.String(40), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("standing", sa.String(8), nullable=False),
        sa.Column("parameters", sa.JSON(none_as_null=True)),
        sa.Column("job_id", sa.String(40)),
        sa.Column("rungs", sa.JSON(), nullable=False),
        sa.Column("value", sa.Double()),
        sa.Column("outcome", sa.String(16)),
        sa.Column("message", sa.Text()),
        sa.Column("due", sa.String(8)),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], name="fk_trials_sweep_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("sweep_id", "number", name="pk_trials"),
    )
    op.create_index("ix_trials_sweep_id_standing", "trials", ["sweep_id", "standing"])
    op.create_index("ix_trials_job_id", "trials", ["job_id"])


def downgrade() -> None:
    op.drop_table("trials")
    op.drop_table("sweeps")
