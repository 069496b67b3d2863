"""The texts of specs are kept as they were submitted. Jobs that were submitted before have none."""

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "submitted_specs",
        sa.Column("job_id", sa.String(40), sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("format", sa.String(4), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("layout_changed", sa.Boolean(), nullable=False, server_default=sa.false()),
    )


def downgrade() -> None:
    op.drop_table("submitted_specs")
