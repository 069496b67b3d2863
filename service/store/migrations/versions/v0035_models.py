"""Checkpoints are pinned, and named as versions of models."""

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None

_LIVING = sa.text("deleted_at IS NULL")


def upgrade() -> None:
    op.create_table(
        "checkpoint_pins",
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("step", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_checkpoint_pins_job_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "step", name="pk_checkpoint_pins"),
    )
    op.create_table(
        "models",
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("newest", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("changes", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_models"),
    )
    _versions()
    op.create_table(
        "model_aliases",
        sa.Column("model", sa.String(63), nullable=False),
        sa.Column("alias", sa.String(63), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("set_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["model"], ["models.name"], name="fk_model_aliases_model"),
        sa.PrimaryKeyConstraint("model", "alias", name="pk_model_aliases"),
    )
    op.create_table(
        "model_changes",
        sa.Column("model", sa.String(63), nullable=False),
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(24), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("ts", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["model"], ["models.name"], name="fk_model_changes_model"),
        sa.PrimaryKeyConstraint("model", "position", name="pk_model_changes"),
    )


def _versions() -> None:
    op.create_table(
        "model_versions",
        sa.Column("model", sa.String(63), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("source", sa.String(40), nullable=False),
        sa.Column("step", sa.BigInteger()),
        sa.Column("artifact", sa.String(400)),
        sa.Column("path", sa.Text()),
        sa.Column("digest", sa.String(64)),
        sa.Column("trained", sa.Boolean(), nullable=False),
        sa.Column("metrics", sa.JSON(), nullable=False),
        sa.Column("notes", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("deleted_at", sa.Double()),
        sa.Column("idempotency_key", sa.String(255)),
        sa.Column("body_hash", sa.String(64), nullable=False),
        sa.ForeignKeyConstraint(["model"], ["models.name"], name="fk_model_versions_model"),
        sa.PrimaryKeyConstraint("model", "number", name="pk_model_versions"),
        sa.UniqueConstraint("idempotency_key", name="uq_model_versions_idempotency_key"),
    )
    op.create_index(
        "ix_model_versions_source", "model_versions", ["source"], sqlite_where=_LIVING, postgresql_where=_LIVING
    )


def downgrade() -> None:
    op.drop_index("ix_model_versions_source", "model_versions")
    for table in ("model_changes", "model_aliases", "model_versions", "models", "checkpoint_pins"):
        op.drop_table(table)
