"""The tables of what users do with a running rank: profile it, and run commands beside it."""

from sqlalchemy import JSON, Column, Double, ForeignKey, Integer, String, Table, Text, UniqueConstraint

from .metadata import METADATA

profiles = Table(
    "profiles",
    METADATA,
    Column("job_id", String(40), ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("id", String(40), primary_key=True),  # sorts by the time of the request
    Column("attempt", Integer, nullable=False),  # the attempt whose rank is profiled
    Column("kind", String(16), nullable=False),  # stacks, cpu, operators, memory
    Column("rank", Integer, nullable=False),
    Column("seconds", Integer, nullable=False),
    Column("state", String(8), nullable=False),  # open, done, failed
    Column("actor", Text, nullable=False),
    Column("asked_at", Double, nullable=False),
    Column("settled_at", Double),
    Column("message", Text),
    Column("file", String(400)),  # name of the artifact that has it
    Column("idempotency_key", String(255)),
    UniqueConstraint("job_id", "idempotency_key"),
)

execs = Table(
    "execs",
    METADATA,
    Column("job_id", String(40), ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("id", String(40), primary_key=True),  # sorts by the time of the request
    Column("attempt", Integer, nullable=False),  # the attempt beside whose rank it runs
    Column("rank", Integer, nullable=False),
    Column("command", JSON, nullable=False),
    Column("seconds", Integer, nullable=False),
    Column("actor", Text, nullable=False),
    Column("asked_at", Double, nullable=False),
    Column("settled_at", Double),
    Column("status", Integer),  # null: it did not run to an end
    Column("message", Text),
    Column("idempotency_key", String(255)),
    UniqueConstraint("job_id", "idempotency_key"),
)
