"""What a cluster is to have when it is whole."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "capacities",
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("device", sa.String(length=8), nullable=False),
        sa.Column("nodes", sa.JSON(), nullable=False),
        sa.Column("told", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "device", name=op.f("pk_capacities")),
    )


def downgrade() -> None:
    op.drop_table("capacities")
