"""Who holds a node's devices, and outlines for lists of jobs."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("nodes", sa.Column("gangs", sa.JSON(), server_default="[]", nullable=False))
    op.create_table(
        "outlines",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("width", sa.BigInteger(), nullable=False),
        sa.Column("low", sa.JSON(), nullable=False),
        sa.Column("high", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_outlines_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_outlines")),
    )


def downgrade() -> None:
    op.drop_table("outlines")
    op.drop_column("nodes", "gangs")
