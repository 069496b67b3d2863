"""Jobs that go on with fewer replicas, and with more."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("elastic", sa.JSON(), nullable=True))
    op.add_column("jobs", sa.Column("elastic_at", sa.Double(), nullable=True))
    elastic = sa.text("elastic_at IS NOT NULL")
    op.create_index("ix_jobs_elastic", "jobs", ["state"], unique=False, sqlite_where=elastic, postgresql_where=elastic)


def downgrade() -> None:
    op.drop_index("ix_jobs_elastic", table_name="jobs")
    op.drop_column("jobs", "elastic_at")
    op.drop_column("jobs", "elastic")
