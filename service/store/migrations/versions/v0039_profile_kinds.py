"""Profiles have kinds with longer names."""

import sqlalchemy as sa
from alembic import op

revision = "0039"
down_revision = "0038"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("profiles") as profiles:
        profiles.alter_column("kind", existing_type=sa.String(8), type_=sa.String(16), existing_nullable=False)


def downgrade() -> None:
    op.execute("DELETE FROM profiles WHERE length(kind) > 8")
    with op.batch_alter_table("profiles") as profiles:
        profiles.alter_column("kind", existing_type=sa.String(16), type_=sa.String(8), existing_nullable=False)
