"""When a trial changed last, so that a page reads again only the trials that changed."""

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("trials", sa.Column("changed_at", sa.Double(), nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("trials", "changed_at")
