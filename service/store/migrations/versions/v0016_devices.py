"""Attempts say how many devices they were given: their job's layout may have changed since."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("attempts", sa.Column("devices", sa.Integer(), nullable=True))


def downgrade() -> None:
    op.drop_column("attempts", "devices")
