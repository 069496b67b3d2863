"""In which queue a job stands, so that a long one of another kind is passed over."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("shape", sa.String(length=40), server_default="", nullable=False))
    _fill()
    op.create_index(op.f("ix_jobs_state_id_retry_at_shape"), "jobs", ["state", "id", "retry_at", "shape"], unique=False)
    op.create_index(op.f("ix_jobs_state_shape"), "jobs", ["state", "shape"], unique=False)
    op.drop_index(op.f("ix_jobs_state_id_retry_at"), table_name="jobs")


def _fill() -> None:
    """Of the jobs that may be queued again."""
    names = ("id", "state", "wanted_device", "world_size", "tensor", "shape", "finished_at")
    jobs = sa.table("jobs", *map(sa.column, names), sa.column("spec", sa.JSON()), sa.column("elastic", sa.JSON()))
    connection = op.get_bind()
    for row in connection.execute(sa.select(jobs).where(jobs.c.finished_at.is_(None))).all():
        least = min((form["world_size"] for form in row.elastic or ()), default=row.world_size)
        spares = row.spec.get("policy", {}).get("spares", 0)
        shape = f"{row.wanted_device} {least} {row.tensor} {spares}"
        connection.execute(sa.update(jobs).where(jobs.c.id == row.id).values(shape=shape))


def downgrade() -> None:
    op.create_index(op.f("ix_jobs_state_id_retry_at"), "jobs", ["state", "id", "retry_at"], unique=False)
    op.drop_index(op.f("ix_jobs_state_shape"), table_name="jobs")
    op.drop_index(op.f("ix_jobs_state_id_retry_at_shape"), table_name="jobs")
    op.drop_column("jobs", "shape")
