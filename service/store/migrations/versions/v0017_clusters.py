"""Several clusters on one database: which one a node, an attempt and a job's lease belong to."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

_DEFAULT = "default"


def upgrade() -> None:
    op.create_table(
        "clusters",
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("fresh_until", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_clusters")),
    )
    op.add_column("jobs", sa.Column("cluster", sa.String(length=63), nullable=True))
    op.execute(f"UPDATE jobs SET cluster = '{_DEFAULT}' WHERE attempt > 0")  # noqa: S608  (a constant of this file)
    op.add_column("attempts", sa.Column("cluster", sa.String(length=63), server_default=_DEFAULT, nullable=False))
    op.drop_table("nodes")  # a dispatcher writes them anew within seconds
    op.create_table("nodes", sa.Column("cluster", sa.String(length=63), nullable=False), *_columns("cluster"))


def downgrade() -> None:
    op.drop_table("nodes")
    op.create_table("nodes", *_columns())
    op.drop_column("attempts", "cluster")
    op.drop_column("jobs", "cluster")
    op.drop_table("clusters")


def _columns(*before: str) -> list[Any]:
    return [
        sa.Column("id", sa.String(length=80), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("alive", sa.Boolean(), nullable=False),
        sa.Column("cpu", sa.Double(), nullable=False),
        sa.Column("gpu", sa.Double(), nullable=False),
        sa.Column("cpu_used", sa.Double(), nullable=False),
        sa.Column("gpu_used", sa.Double(), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("seen_at", sa.Double(), nullable=False),
        sa.Column("gangs", sa.JSON(), server_default="[]", nullable=False),
        sa.PrimaryKeyConstraint(*before, "id", name=op.f("pk_nodes")),
    ]
