"""Curves by bucket, of the steps that are stored already too."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_SERIES = ("loss", "lr", "grad_norm", "loss_scale", "tokens_per_s", "step_s", "step_s_max", "mfu")
_ENDS = ("low", "high", "sum")


def upgrade() -> None:
    op.create_table(
        "rollups",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("width", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("bucket", sa.BigInteger(), autoincrement=False, nullable=False),
        *(sa.Column(f"{name}_{end}", sa.Double(), nullable=True) for name in _SERIES for end in _ENDS),
        *(sa.Column(f"{name}_count", sa.BigInteger(), nullable=False) for name in _SERIES),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_rollups_job_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "width", "bucket", name=op.f("pk_rollups")),
        sqlite_with_rowid=False,
    )
    _fill(32, "steps", "(step - 1)", 32)
    _fill(1024, "rollups", "bucket", 32)
    _fill(32_768, "rollups", "bucket", 32)


def _fill(width: int, source: str, number: str, many: int) -> None:
    """Buckets of `width` steps, each of `many` rows of the source: steps, or the level below."""
    steps = source == "steps"
    low, high, total, count = (
        (
            "min({0})",
            "max({0})",
            "sum(CASE WHEN abs({0}) < 1e290 THEN {0} END)",
            "count(CASE WHEN abs({0}) < 1e290 THEN {0} END)",
        )
        if steps
        else ("min({0}_low)", "max({0}_high)", "sum({0}_sum)", "sum({0}_count)")
    )
    values = [made.format(name) for name in _SERIES for made in (low, high, total)] + [count.format(n) for n in _SERIES]
    columns = [f"{name}_{end}" for name in _SERIES for end in _ENDS] + [f"{name}_count" for name in _SERIES]
    where = "" if steps else f"WHERE width = {width // many} "
    op.execute(
        f"INSERT INTO rollups (job_id, width, bucket, {', '.join(columns)}) "  # noqa: S608  (constants of this file)
        f"SELECT job_id, {width}, {number} / {many} AS place, {', '.join(values)} FROM {source} {where}"
        "GROUP BY job_id, place"
    )


def downgrade() -> None:
    op.drop_table("rollups")
