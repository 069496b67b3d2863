"""Programs log metrics of their own."""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "metric_series",
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("width", sa.BigInteger(), nullable=False),
        sa.Column("run", sa.BigInteger(), nullable=False),
        sa.Column("last_step", sa.BigInteger(), nullable=False),
        sa.Column("last", sa.Double()),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_metric_series_job_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "number", name="pk_metric_series"),
        sa.UniqueConstraint("job_id", "name", name="uq_metric_series_job_id_name"),
    )
    op.create_table(
        "metric_chunks",
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("chunk", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("packed", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id", "number"],
            ["metric_series.job_id", "metric_series.number"],
            name="fk_metric_chunks_job_id",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("job_id", "number", "chunk", name="pk_metric_chunks"),
    )


def downgrade() -> None:
    op.drop_table("metric_chunks")
    op.drop_table("metric_series")
