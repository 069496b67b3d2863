"""A node has the model of its GPUs and the memory of its host; empty and 0: unknown."""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("nodes", sa.Column("gpu_model", sa.String(80), nullable=False, server_default=""))
    op.add_column("nodes", sa.Column("host_memory_bytes", sa.BigInteger(), nullable=False, server_default="0"))


def downgrade() -> None:
    with op.batch_alter_table("nodes") as nodes:
        nodes.drop_column("host_memory_bytes")
        nodes.drop_column("gpu_model")
