"""A dispatcher stores how its cluster's devices are counted in ranks, for processes with other settings."""

import sqlalchemy as sa
from alembic import op

revision = "0045"
down_revision = "0044"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("clusters", sa.Column("max_ranks", sa.BigInteger()))
    op.add_column("clusters", sa.Column("cpu_ranks_per_core", sa.Integer()))


def downgrade() -> None:
    op.drop_column("clusters", "cpu_ranks_per_core")
    op.drop_column("clusters", "max_ranks")
