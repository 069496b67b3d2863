"""A node has the zone, rail and NVLink domain of its labels. A job's shape may name a GPU model."""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("zone", "rail", "domain"):
        op.add_column("nodes", sa.Column(name, sa.String(63), nullable=False, server_default=""))
    if op.get_bind().dialect.name == "postgresql":
        op.alter_column("jobs", "shape", type_=sa.String(120))


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.alter_column("jobs", "shape", type_=sa.String(40), postgresql_using="substr(shape, 1, 40)")
    with op.batch_alter_table("nodes") as nodes:
        for name in ("domain", "rail", "zone"):
            nodes.drop_column(name)
