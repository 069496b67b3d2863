"""The index of elastic jobs has both columns that the search for jobs which may grow compares."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

_ELASTIC = sa.text("elastic_at IS NOT NULL")


def upgrade() -> None:
    _index("state", "elastic_at")


def downgrade() -> None:
    _index("state")


def _index(*columns: str) -> None:
    op.drop_index("ix_jobs_elastic", table_name="jobs")
    op.create_index(
        "ix_jobs_elastic", "jobs", list(columns), unique=False, sqlite_where=_ELASTIC, postgresql_where=_ELASTIC
    )
