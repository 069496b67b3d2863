"""Operations that no dispatcher runs yet are `pending`, as other APIs call it."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _rename("waiting", "pending")


def downgrade() -> None:
    _rename("pending", "waiting")


def _rename(old: str, new: str) -> None:
    operations = sa.table("operations", sa.column("state"))
    op.execute(sa.update(operations).where(operations.c.state == old).values(state=new))
