"""The tables of sweeps and their trials."""

from sqlalchemy import JSON, Column, Double, ForeignKey, Index, Integer, String, Table, Text, text

from .metadata import METADATA

_OPEN = text("finished_at IS NULL")

sweeps = Table(
    "sweeps",
    METADATA,
    Column("id", String(40), primary_key=True),  # sorts by time of submission
    Column("name", String(63), nullable=False),
    Column("state", String(16), nullable=False),  # running, cancelling, succeeded, failed, cancelled
    Column("message", Text),
    Column("spec", JSON, nullable=False),  # of a trial's job, without the parameters' values
    Column("parent", String(40)),  # the job with whose checkpoint the trials begin, if its path names one
    Column("sweep", JSON, nullable=False),
    Column("trials", Integer, nullable=False),
    Column("actor", Text, nullable=False),
    Column("idempotency_key", String(255), unique=True),
    Column("body_hash", String(128)),
    Column("created_at", Double, nullable=False),
    Column("finished_at", Double),
    # the dispatcher that advances it; no other one does before `free_at`, by the database's clock
    Column("lease_token", String(40)),
    Column("free_at", Double, nullable=False, server_default="0"),
    Index(None, "name", "id"),
    Index("ix_sweeps_open", "id", sqlite_where=_OPEN, postgresql_where=_OPEN),
    Index("ix_sweeps_parent", "parent", sqlite_where=_OPEN, postgresql_where=_OPEN),
)

trials = Table(
    "trials",
    METADATA,
    Column("sweep_id", String(40), ForeignKey("sweeps.id", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("standing", String(8), nullable=False),  # `policies/asha.py`
    Column("parameters", JSON(none_as_null=True)),  # null: not decided yet
    Column("job_id", String(40)),  # the job may be deleted before the sweep
    Column("rungs", JSON, nullable=False),  # the metric at each rung that it reached; null if it was not finite
    Column("value", Double),  # the metric at its end, or at the last rung
    Column("outcome", String(16)),  # succeeded, failed, cancelled, stopped, refused
    Column("message", Text),
    Column("due", String(8)),  # what is still to be done for its job: submit, pause, resume, cancel
    Column("changed_at", Double, nullable=False, server_default="0"),  # by the database's clock; 0: as it was submitted
    Index(None, "sweep_id", "standing"),
    Index(None, "job_id"),
)
