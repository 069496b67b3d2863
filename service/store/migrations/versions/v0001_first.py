"""The first schema: jobs, their labels, attempts, events, steps and logs, and the cluster's nodes."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.String(length=64), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("layout", sa.Text(), nullable=False),
        sa.Column("batch", sa.Text(), nullable=False),
        sa.Column("world_size", sa.Integer(), nullable=False),
        sa.Column("tensor", sa.Integer(), nullable=False),
        sa.Column("wanted_device", sa.String(length=8), nullable=False),
        sa.Column("device", sa.String(length=8), nullable=True),
        sa.Column("max_restarts", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), server_default="0", nullable=False),
        sa.Column("restarts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("resume", sa.Text(), nullable=True),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("idempotency_key", sa.String(length=255), nullable=True),
        sa.Column("body_hash", sa.String(length=128), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.Column("lease_owner", sa.Text(), nullable=True),
        sa.Column("lease_token", sa.String(length=40), nullable=True),
        sa.Column("lease_until", sa.Double(), nullable=True),
        sa.Column("event_pos", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("step_pos", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("log_pos", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("steps", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.Column("loss", sa.Double(), nullable=True),
        sa.Column("tokens", sa.BigInteger(), nullable=True),
        sa.Column("tokens_per_s", sa.Double(), nullable=True),
        sa.Column("mean_step_s", sa.Double(), nullable=True),
        sa.Column("eta_s", sa.Double(), nullable=True),
        sa.Column("checkpoint", sa.Text(), nullable=True),
        sa.Column("summary", sa.JSON(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
        sa.UniqueConstraint("idempotency_key", name=op.f("uq_jobs_idempotency_key")),
    )
    op.create_index(op.f("ix_jobs_lease_token"), "jobs", ["lease_token"], unique=False)
    op.create_index(op.f("ix_jobs_name_id"), "jobs", ["name", "id"], unique=False)
    op.create_index(op.f("ix_jobs_state_id"), "jobs", ["state", "id"], unique=False)
    op.create_table(
        "nodes",
        sa.Column("id", sa.String(length=80), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("alive", sa.Boolean(), nullable=False),
        sa.Column("cpu", sa.Double(), nullable=False),
        sa.Column("gpu", sa.Double(), nullable=False),
        sa.Column("cpu_used", sa.Double(), nullable=False),
        sa.Column("gpu_used", sa.Double(), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("seen_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_nodes")),
    )
    op.create_table(
        "attempts",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("gang", sa.Text(), nullable=False),
        sa.Column("device", sa.String(length=8), nullable=False),
        sa.Column("nodes", sa.JSON(), nullable=False),
        sa.Column("cursor", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("outcome", sa.String(length=64), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_attempts_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "number", name=op.f("pk_attempts")),
    )
    op.create_table(
        "events",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("ts", sa.Double(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_events_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "position", name=op.f("pk_events")),
    )
    op.create_index(op.f("ix_events_job_id_kind_position"), "events", ["job_id", "kind", "position"], unique=False)
    op.create_table(
        "labels",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("key", sa.String(length=63), nullable=False),
        sa.Column("value", sa.String(length=255), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_labels_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "key", name=op.f("pk_labels")),
    )
    op.create_index(op.f("ix_labels_key_value_job_id"), "labels", ["key", "value", "job_id"], unique=False)
    op.create_table(
        "logs",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("stream", sa.String(length=8), nullable=False),
        sa.Column("line", sa.BigInteger(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("ts", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_logs_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "position", name=op.f("pk_logs")),
    )
    op.create_index(op.f("ix_logs_job_id_rank_position"), "logs", ["job_id", "rank", "position"], unique=False)
    op.create_table(
        "steps",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("step", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("ts", sa.Double(), nullable=False),
        sa.Column("loss", sa.Double(), nullable=True),
        sa.Column("lr", sa.Double(), nullable=True),
        sa.Column("grad_norm", sa.Double(), nullable=True),
        sa.Column("loss_scale", sa.Double(), nullable=True),
        sa.Column("skipped", sa.Boolean(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=True),
        sa.Column("tokens_per_s", sa.Double(), nullable=True),
        sa.Column("step_s", sa.Double(), nullable=True),
        sa.Column("step_s_min", sa.Double(), nullable=True),
        sa.Column("step_s_median", sa.Double(), nullable=True),
        sa.Column("step_s_max", sa.Double(), nullable=True),
        sa.Column("slowest_rank", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_steps_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "step", name=op.f("pk_steps")),
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("ix_steps_job_id_position"), "steps", ["job_id", "position"], unique=True)


def downgrade() -> None:
    op.drop_index(op.f("ix_steps_job_id_position"), table_name="steps")
    op.drop_table("steps")
    op.drop_index(op.f("ix_logs_job_id_rank_position"), table_name="logs")
    op.drop_table("logs")
    op.drop_index(op.f("ix_labels_key_value_job_id"), table_name="labels")
    op.drop_table("labels")
    op.drop_index(op.f("ix_events_job_id_kind_position"), table_name="events")
    op.drop_table("events")
    op.drop_table("attempts")
    op.drop_table("nodes")
    op.drop_index(op.f("ix_jobs_state_id"), table_name="jobs")
    op.drop_index(op.f("ix_jobs_name_id"), table_name="jobs")
    op.drop_index(op.f("ix_jobs_lease_token"), table_name="jobs")
    op.drop_table("jobs")
