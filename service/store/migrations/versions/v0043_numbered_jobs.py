"""Lists of jobs are sorted by duration, device time and logged metrics: what can grow no more is stored, and indexed."""

import struct
from collections.abc import Iterator
from itertools import groupby, islice
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0043"
down_revision = "0042"
branch_labels = None
depends_on = None

_DEVICE_S = sa.text(
    "UPDATE jobs SET duration_s = finished_at - started_at, device_s = ("
    "SELECT SUM((a.ended_at - a.started_at) * COALESCE(a.devices, jobs.world_size)) FROM attempts AS a "
    "WHERE a.job_id = jobs.id AND a.ended_at IS NOT NULL)"
)
#: A bucket's place in its chunk, number of values, lowest, highest and sum of them.
_BUCKET = struct.Struct("<HIddd")
#: Chunks of one read, of at most 8 kB; and metrics of one statement.
_BATCH = 1000


def upgrade() -> None:
    op.add_column("metric_series", sa.Column("lowest", sa.Double()))
    op.add_column("metric_series", sa.Column("highest", sa.Double()))
    _store_extremes()
    for column in ("last", "lowest", "highest"):
        op.create_index(f"ix_metric_series_name_{column}_job_id", "metric_series", ["name", column, "job_id"])
    op.add_column("jobs", sa.Column("duration_s", sa.Double()))
    op.add_column("jobs", sa.Column("device_s", sa.Double()))
    op.execute(_DEVICE_S)
    op.create_index("ix_jobs_duration_s_id", "jobs", ["duration_s", "id"])
    op.create_index("ix_jobs_device_s_id", "jobs", ["device_s", "id"])
    op.drop_index("ix_jobs_finished_at", "jobs")
    op.create_index("ix_jobs_finished_at_started_at", "jobs", ["finished_at", "started_at"])


def downgrade() -> None:
    for column in ("last", "lowest", "highest"):
        op.drop_index(f"ix_metric_series_name_{column}_job_id", "metric_series")
    op.drop_column("metric_series", "highest")
    op.drop_column("metric_series", "lowest")
    op.create_index("ix_jobs_finished_at", "jobs", ["finished_at"])
    for index in ("ix_jobs_finished_at_started_at", "ix_jobs_device_s_id", "ix_jobs_duration_s_id"):
        op.drop_index(index, "jobs")
    op.drop_column("jobs", "device_s")
    op.drop_column("jobs", "duration_s")


def _store_extremes() -> None:
    tx = op.get_bind()
    extremes = (sa.column("lowest", sa.Double), sa.column("highest", sa.Double))
    key = (sa.column("job_id", sa.String), sa.column("number", sa.Integer))
    series = sa.table("metric_series", *key, *extremes)
    mine = (series.c.job_id == sa.bindparam("of_job"), series.c.number == sa.bindparam("of_number"))
    statement = sa.update(series).where(*mine).values(lowest=sa.bindparam("low"), highest=sa.bindparam("high"))
    found = _extremes(tx)
    while some := list(islice(found, _BATCH)):
        tx.execute(statement, some)


def _extremes(tx: sa.Connection) -> Iterator[dict[str, Any]]:
    """Of each metric that has values: its key, its lowest and its highest value."""
    for (job_id, number), chunks in groupby(_chunks(tx), lambda row: (row.job_id, row.number)):
        buckets = [bucket for row in chunks for bucket in _BUCKET.iter_unpack(row.packed)]
        if buckets:
            low, high = min(bucket[2] for bucket in buckets), max(bucket[3] for bucket in buckets)
            yield {"of_job": job_id, "of_number": number, "low": low, "high": high}


def _chunks(tx: sa.Connection) -> Iterator[Any]:
    """The chunks of all metrics in the order of their key, a batch at a time."""
    columns = (sa.column("job_id", sa.String), sa.column("number", sa.Integer), sa.column("chunk", sa.Integer))
    chunks = sa.table("metric_chunks", *columns, sa.column("packed", sa.LargeBinary))
    key = (chunks.c.job_id, chunks.c.number, chunks.c.chunk)
    query = sa.select(chunks).order_by(*key).limit(_BATCH)
    rows = tx.execute(query).all()
    while rows:
        yield from rows
        last = sa.tuple_(*rows[-1][:3], types=[column.type for column in key])
        rows = tx.execute(query.where(sa.tuple_(*key) > last)).all()
