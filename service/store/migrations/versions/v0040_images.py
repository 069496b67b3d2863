"""A node has the image of its label. A job's shape may name one."""

import sqlalchemy as sa
from alembic import op

revision = "0040"
down_revision = "0039"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("nodes", sa.Column("image", sa.String(63), nullable=False, server_default=""))
    if op.get_bind().dialect.name == "postgresql":
        op.alter_column("jobs", "shape", type_=sa.String(200))


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.alter_column("jobs", "shape", type_=sa.String(120), postgresql_using="substr(shape, 1, 120)")
    with op.batch_alter_table("nodes") as nodes:
        nodes.drop_column("image")
