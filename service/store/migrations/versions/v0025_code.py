"""Jobs may run an archive of code that was uploaded."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "code_archives",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("manifest", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(9), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("used_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_code_archives"),
    )
    kept = sa.text("state <> 'removing'")
    op.create_index(
        "uq_code_archives_digest", "code_archives", ["digest"], unique=True, sqlite_where=kept, postgresql_where=kept
    )
    op.create_index("ix_code_archives_used_at", "code_archives", ["used_at"])
    op.create_table(
        "code_parts",
        sa.Column("archive_id", sa.String(40), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.ForeignKeyConstraint(["archive_id"], ["code_archives.id"], name="fk_code_parts_archive_id"),
        sa.PrimaryKeyConstraint("archive_id", "number", name="pk_code_parts"),
    )
    op.add_column("jobs", sa.Column("code", sa.String(40)))
    op.create_index("ix_jobs_code", "jobs", ["code"])


def downgrade() -> None:
    op.drop_index("ix_jobs_code", "jobs")
    op.drop_column("jobs", "code")
    op.drop_table("code_parts")
    op.drop_table("code_archives")
