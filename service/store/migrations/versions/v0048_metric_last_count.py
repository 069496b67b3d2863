"""How many ranks' values the newest value of a logged metric is the mean of. What was stored before counts as one."""

import sqlalchemy as sa
from alembic import op

revision = "0048"
down_revision = "0047"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("metric_series", sa.Column("last_count", sa.Integer(), nullable=False, server_default="1"))


def downgrade() -> None:
    op.drop_column("metric_series", "last_count")
