"""The tables of jobs that run a program of the user's own: uploaded code, and logged metrics."""

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from .metadata import METADATA

KEPT_CODE = text("state <> 'removing'")  # one archive of each content; those that are being removed do not count
code_archives = Table(
    "code_archives",
    METADATA,
    Column("id", String(40), primary_key=True),
    Column("digest", String(64), nullable=False),  # of its manifest
    Column("manifest", JSON, nullable=False),
    Column("state", String(9), nullable=False),  # uploading, complete, removing
    Column("actor", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("used_at", Double, nullable=False),  # uploaded, or named by a new job; by the database's clock
    Index("uq_code_archives_digest", "digest", unique=True, sqlite_where=KEPT_CODE, postgresql_where=KEPT_CODE),
    Index(None, "used_at"),
)

code_parts = Table(
    "code_parts",
    METADATA,
    Column("archive_id", String(40), ForeignKey("code_archives.id"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),  # of a part that is in storage
)

#: One logged metric of a job; `logged_metrics.py` says how it is bounded.
metric_series = Table(
    "metric_series",
    METADATA,
    Column("job_id", String(40), ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("name", String(200), nullable=False),
    Column("width", BigInteger, nullable=False),  # steps of a bucket
    Column("run", BigInteger, nullable=False),  # attempt and generation that logged last
    Column("last_step", BigInteger, nullable=False),
    Column("last", Double),  # mean of the newest step's finite values
    Column("last_count", Integer, nullable=False, server_default="1"),  # how many they are
    Column("lowest", Double),  # of its buckets
    Column("highest", Double),
    UniqueConstraint("job_id", "name"),
    # lists of jobs in the order of a metric
    Index(None, "name", "last", "job_id"),
    Index(None, "name", "lowest", "job_id"),
    Index(None, "name", "highest", "job_id"),
)

#: One file that a program logged, at one step.
artifacts = Table(
    "artifacts",
    METADATA,
    Column("job_id", String(40), ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("name", String(400), primary_key=True),
    Column("step", BigInteger, primary_key=True, autoincrement=False),  # -1: none
    Column("type", String(8), nullable=False),  # file, image, table
    Column("rank", Integer, nullable=False),
    Column("run", BigInteger, nullable=False),  # attempt and generation that logged it
    Column("bytes", BigInteger, nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("media_type", String(80), nullable=False),
    Column("ts", Double, nullable=False),
)

#: Up to 256 buckets of a metric.
metric_chunks = Table(
    "metric_chunks",
    METADATA,
    Column("job_id", String(40), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("chunk", Integer, primary_key=True, autoincrement=False),
    Column("packed", LargeBinary, nullable=False),
    ForeignKeyConstraint(["job_id", "number"], ["metric_series.job_id", "metric_series.number"], ondelete="CASCADE"),
)
