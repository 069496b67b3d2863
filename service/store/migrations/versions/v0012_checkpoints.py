"""What has become of each checkpoint."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_AT_ONCE = 1000


def upgrade() -> None:
    table = op.create_table(
        "checkpoints",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=8), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_checkpoints_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "step", name=op.f("pk_checkpoints")),
    )
    events = sa.table("events", sa.column("job_id"), sa.column("kind"), sa.column("data", sa.JSON()))
    told = op.get_bind().execute(sa.select(events.c.job_id, events.c.data).where(events.c.kind == "checkpoint"))
    known = sorted({(row.job_id, int(row.data["step"])) for row in told})
    for at in range(0, len(known), _AT_ONCE):
        rows = [{"job_id": job, "step": step, "state": "present"} for job, step in known[at : at + _AT_ONCE]]
        op.bulk_insert(table, rows)


def downgrade() -> None:
    op.drop_table("checkpoints")
