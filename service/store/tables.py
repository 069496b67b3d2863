"""The tables of the database, without queries. Times are unix seconds (UTC).

A job's events, steps, log lines and rank samples are numbered by *positions*. A position is allocated by raising a counter in the
job's row, inside the transaction that writes the record. The row's lock makes positions appear in the order in which they are
committed, so a reader that continues after position `n` misses no record. Positions grow; they may have gaps, except those of log
lines.
"""

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
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
    false,
    text,
)

from . import (
    cluster_tables,
    model_tables,
    profile_tables,
    program_tables,
    spec_tables,
    sweep_tables,
    system_tables,
)
from .metadata import METADATA

#: All tables of METADATA are known with this module.
__all__ = [
    "METADATA",
    "cluster_tables",
    "model_tables",
    "profile_tables",
    "program_tables",
    "spec_tables",
    "sweep_tables",
    "system_tables",
]


def _counter(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False, server_default="0")


def _job_id(*, primary_key: bool = True) -> Column[str]:
    return Column("job_id", String(40), ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=primary_key)


#: Few jobs are elastic: a query for those that may grow skips all others.
_ELASTIC = text("elastic_at IS NOT NULL")
_OPEN = text("settled_at IS NULL")
_DELETED = text("deleted_at IS NOT NULL")
_PARENT = text("parent IS NOT NULL")
_RETENTION = text("retention IS NOT NULL")

jobs = Table(
    "jobs",
    METADATA,
    Column("id", String(40), primary_key=True),  # sorts by time of submission
    Column("name", String(63), nullable=False),
    Column("state", String(16), nullable=False),
    Column("reason", String(64)),
    Column("message", Text),
    Column("labels", JSON, nullable=False),
    Column("notes", Text, nullable=False, server_default=""),
    Column("resource_use", JSON(none_as_null=True)),  # of all its ranks, as last sampled
    Column("spec", JSON, nullable=False),
    Column("layout", Text, nullable=False),
    Column("batch", Text, nullable=False),
    Column("world_size", Integer, nullable=False),
    Column("tensor", Integer, nullable=False),
    Column("wanted_device", String(8), nullable=False),  # auto, cpu, cuda
    # Identifies the job's queue, `pool.Waiting.shape`. SQLite holds no string to a length.
    Column("shape", String(200).with_variant(String(40), "sqlite"), nullable=False, server_default=""),
    Column("device", String(8)),  # the device kind of the placement
    Column("max_restarts", Integer, nullable=False),
    Column("attempt", Integer, nullable=False, server_default="0"),
    Column("restarts", Integer, nullable=False, server_default="0"),  # those that used up max_restarts
    Column("max_retries", Integer, nullable=False, server_default="0"),
    Column("retries", Integer, nullable=False, server_default="0"),  # after exceptions of the training code
    Column("repairs", Integer, nullable=False, server_default="0"),  # in place, of this attempt
    Column("setbacks", Integer, nullable=False, server_default="0"),  # attempts in a row lost without progress
    _counter("furthest"),  # the furthest step when the last attempt was lost
    Column("retry_at", Double, nullable=False, server_default="0"),  # earliest placement, by the database's clock
    # of an elastic job (`elastic.py`): its possible layouts, and from when on another than the present one is taken
    Column("elastic", JSON(none_as_null=True)),
    Column("elastic_at", Double),
    Column("resume", Text),  # another job's checkpoint
    Column("parent", String(40)),  # that job, if the path names one
    Column("retry_of", String(40)),
    Column("retried_by", String(40)),  # the newest retry of this job
    Column("pinned", Boolean, nullable=False, server_default=false()),
    # a deleted job can be restored until a dispatcher begins to remove it
    Column("deleted_at", Double),  # by the database's clock
    Column("deleted_by", Text),
    Column("removing", Boolean, nullable=False, server_default=false()),
    Column("retention", JSON(none_as_null=True)),  # days and sizes by kind of record, where the spec names any
    Column("code", String(40)),  # the archive of code that it runs, `code_archives.id`
    Column("actor", Text, nullable=False),
    Column("idempotency_key", String(255), unique=True),
    Column("body_hash", String(128)),
    Column("created_at", Double, nullable=False),
    Column("started_at", Double),
    Column("finished_at", Double),
    # seconds of a job that has ended, and device-seconds of all attempts that have: lists are sorted by them (`numbered_jobs.py`)
    Column("duration_s", Double),
    Column("device_s", Double),
    # the dispatcher that manages the job, and the only cluster on which it may run: the one that placed it first
    Column("lease_owner", Text),
    Column("lease_token", String(40)),
    Column("lease_until", Double),
    Column("cluster", String(63)),
    # the last positions that were allocated
    _counter("event_pos"),
    _counter("step_pos"),
    _counter("log_pos"),
    _counter("rank_pos"),
    # progress, as of the newest step
    Column("steps", BigInteger, nullable=False),
    Column("step", BigInteger),
    Column("loss", Double),
    Column("tokens", BigInteger),
    Column("tokens_per_s", Double),
    Column("mean_step_s", Double),
    Column("eta_s", Double),
    Column("checkpoint", Text),
    Column("summary", JSON),
    Index(None, "name", "id"),
    # the queue in order: jobs whose next try is later, and those of other queues, are skipped in the index without reading their rows
    Index(None, "state", "id", "retry_at", "shape"),
    Index(None, "state", "shape"),
    Index(None, "lease_token"),
    Index(None, "code"),
    Index("ix_jobs_deleted", "deleted_at", sqlite_where=_DELETED, postgresql_where=_DELETED),
    Index("ix_jobs_parent", "parent", sqlite_where=_PARENT, postgresql_where=_PARENT),
    Index(None, "finished_at", "started_at"),
    Index(None, "duration_s", "id"),
    Index(None, "device_s", "id"),
    Index("ix_jobs_retention", "state", "id", "finished_at", sqlite_where=_RETENTION, postgresql_where=_RETENTION),
    # with the time: without statistics, which SQLite has only after ANALYZE, the planner takes the index of which it can use more columns
    Index("ix_jobs_elastic", "state", "elastic_at", sqlite_where=_ELASTIC, postgresql_where=_ELASTIC),
)

labels = Table(
    "labels",
    METADATA,
    _job_id(),
    Column("key", String(63), primary_key=True),
    Column("value", String(255), nullable=False),
    Index(None, "key", "value", "job_id"),
)

attempts = Table(
    "attempts",
    METADATA,
    _job_id(),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("gang", Text, nullable=False),
    Column("device", String(8), nullable=False),
    Column("nodes", JSON, nullable=False),  # ids of the nodes that were alive when it was placed; none at its end
    Column("devices", Integer),  # number of devices, spares included; null for attempts placed by earlier versions
    _counter("cursor"),  # the number of the gang's last event that is stored
    Column("started_at", Double, nullable=False),
    Column("ended_at", Double),
    Column("outcome", String(64)),  # code of the reason why it ended
    Column("error", String(64)),  # fingerprint of the exception that ended it
    Column("cluster", String(63), nullable=False, server_default="default"),
    Index(None, "ended_at", "job_id", "number"),
)

events = Table(
    "events",
    METADATA,
    _job_id(),
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("attempt", Integer, nullable=False),
    Column("kind", String(32), nullable=False),
    Column("ts", Double, nullable=False),
    Column("actor", Text, nullable=False),
    Column("data", JSON, nullable=False),
    Index(None, "job_id", "kind", "position"),
)

faults = Table(
    "faults",
    METADATA,
    _job_id(),
    Column("id", String(40), primary_key=True),
    Column("attempt", Integer, nullable=False),  # the attempt that it is for
    Column("kind", String(32), nullable=False),
    Column("rank", Integer),
    Column("delay_ms", Double),
    Column("duration_s", Double),
    Column("actor", Text, nullable=False),
    Column("asked_at", Double, nullable=False),
    Column("settled_at", Double),  # injected, or missed because the attempt ended; an event records which
    Column("idempotency_key", String(255)),
    UniqueConstraint("job_id", "idempotency_key"),
)

traces = Table(
    "traces",
    METADATA,
    _job_id(),
    Column("id", String(40), primary_key=True),  # sorts by the time of the request
    Column("attempt", Integer, nullable=False),  # the traced attempt
    Column("steps", Integer, nullable=False),
    Column("state", String(8), nullable=False),  # open, done, failed
    Column("actor", Text, nullable=False),
    Column("asked_at", Double, nullable=False),
    Column("settled_at", Double),
    Column("message", Text),
    Column("first_step", BigInteger),
    Column("last_step", BigInteger),
    _counter("bytes"),  # the bodies of its parts
    Column("idempotency_key", String(255)),
    UniqueConstraint("job_id", "idempotency_key"),
)

trace_parts = Table(
    "trace_parts",
    METADATA,
    Column("job_id", String(40), primary_key=True),
    Column("trace_id", String(40), primary_key=True),
    Column("step", BigInteger, primary_key=True, autoincrement=False),
    Column("rank", Integer, primary_key=True, autoincrement=False),
    Column("began", Double, nullable=False),
    Column("seconds", Double, nullable=False),
    Column("head", JSON, nullable=False),  # the data of a summary
    Column("body", LargeBinary, nullable=False),  # spans and schedule: JSON, deflated
    ForeignKeyConstraint(["job_id", "trace_id"], ["traces.job_id", "traces.id"], ondelete="CASCADE"),
)

operations = Table(
    "operations",
    METADATA,
    _job_id(),
    Column("id", String(40), primary_key=True),  # sorts by the time of the request
    Column("kind", String(16), nullable=False),  # verify, export, pin, unpin
    Column("position", BigInteger, nullable=False),  # the position of the checkpoint's event
    Column("step", BigInteger, nullable=False),
    Column("path", Text, nullable=False),
    Column("out", Text),  # the folder of an export
    Column("dtype", String(8)),
    Column("state", String(8), nullable=False),  # pending, running, done, failed
    Column("result", JSON(none_as_null=True)),
    Column("error", JSON(none_as_null=True)),  # code, message, remedy
    Column("actor", Text, nullable=False),
    Column("asked_at", Double, nullable=False),
    Column("started_at", Double),  # of the newest try
    Column("settled_at", Double),
    Column("tries", Integer, nullable=False, server_default="0"),
    # the dispatcher that runs it; no other dispatcher takes it before `free_at`, by the database's clock
    Column("lease_owner", Text),
    Column("lease_token", String(40)),
    Column("free_at", Double, nullable=False, server_default="0"),
    Column("idempotency_key", String(255)),
    UniqueConstraint("job_id", "idempotency_key"),
    Index("ix_operations_open", "id", sqlite_where=_OPEN, postgresql_where=_OPEN),
)

checkpoints = Table(
    "checkpoints",
    METADATA,
    _job_id(),
    Column("step", BigInteger, primary_key=True, autoincrement=False),  # a job has one folder of each step
    Column("state", String(8), nullable=False),  # present, corrupt, deleted
)

steps = Table(
    "steps",
    METADATA,
    _job_id(),
    Column("step", BigInteger, primary_key=True, autoincrement=False),
    Column("position", BigInteger, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("ts", Double, nullable=False),
    Column("loss", Double),
    Column("lr", Double),
    Column("grad_norm", Double),
    Column("loss_scale", Double),
    Column("skipped", Boolean, nullable=False),
    Column("tokens", BigInteger),
    Column("tokens_per_s", Double),
    Column("step_s", Double),
    Column("step_s_min", Double),
    Column("step_s_median", Double),
    Column("step_s_max", Double),
    Column("slowest_rank", Integer),
    Column("mfu", Double),  # null if the devices' peak is not known
    Index(None, "job_id", "position", unique=True),
    sqlite_with_rowid=False,  # rows are in order of job and step, so that a curve is read in one walk
)

rank_samples = Table(
    "rank_samples",
    METADATA,
    _job_id(),
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("attempt", Integer, nullable=False),
    Column("step", BigInteger, nullable=False),  # the last of the steps that it is the mean of
    Column("ts", Double, nullable=False),
    Column("world_size", Integer, nullable=False),
    Column("packed", LargeBinary, nullable=False),  # lists by rank
)

outlines = Table(
    "outlines",
    METADATA,
    _job_id(),
    Column("attempt", Integer, nullable=False),  # the attempt that reported the last steps
    Column("width", BigInteger, nullable=False),  # steps of a bucket
    Column("low", JSON, nullable=False),
    Column("high", JSON, nullable=False),
)

#: The numbers of a step that are shown as curves.
SERIES = ("loss", "lr", "grad_norm", "loss_scale", "tokens_per_s", "step_s", "step_s_max", "mfu")

rollups = Table(
    "rollups",
    METADATA,
    _job_id(),
    Column("width", Integer, primary_key=True, autoincrement=False),  # steps of a bucket
    Column("bucket", BigInteger, primary_key=True, autoincrement=False),  # i has the steps from i · width + 1 on
    *(Column(f"{name}_{end}", Double) for name in SERIES for end in ("low", "high", "sum")),
    *(Column(f"{name}_count", BigInteger, nullable=False) for name in SERIES),  # of the steps that are in the sum
    sqlite_with_rowid=False,
)

logs = Table(
    "logs",
    METADATA,
    _job_id(),
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("attempt", Integer, nullable=False),
    Column("rank", Integer, nullable=False),
    Column("stream", String(8), nullable=False),
    Column("line", BigInteger, nullable=False),
    Column("text", Text, nullable=False),
    Column("ts", Double, nullable=False),
    Index(None, "job_id", "rank", "position"),
)

#: What a job's log takes, apart from `jobs`: so a sum over all jobs reads short rows, and an update touches none of the indexes of `jobs`.
log_sizes = Table(
    "log_sizes",
    METADATA,
    _job_id(),
    Column("bytes", BigInteger, nullable=False),
    Column("uncounted", BigInteger, nullable=False),  # lines up to this position are not in `bytes` yet
)

secrets = Table(
    "secrets",
    METADATA,
    Column("name", String(255), primary_key=True),
    Column("sealed", LargeBinary, nullable=False),  # name and value, encrypted (`secret_cipher.py`)
    Column("actor", Text, nullable=False),  # who set it last
    Column("created_at", Double, nullable=False),
    Column("updated_at", Double, nullable=False),
)
