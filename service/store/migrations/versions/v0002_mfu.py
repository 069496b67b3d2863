"""Steps tell the share of the devices' peak that they used."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("steps", sa.Column("mfu", sa.Double(), nullable=True))


def downgrade() -> None:
    op.drop_column("steps", "mfu")
