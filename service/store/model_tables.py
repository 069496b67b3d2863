"""The tables of the model registry, and the pins of checkpoints."""

from sqlalchemy import JSON, BigInteger, Boolean, Column, Double, ForeignKey, Index, Integer, String, Table, Text, text

from .metadata import METADATA

_LIVING = text("deleted_at IS NULL")

checkpoint_pins = Table(
    "checkpoint_pins",
    METADATA,
    Column("job_id", String(40), ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("step", BigInteger, primary_key=True, autoincrement=False),
    Column("digest", String(64), nullable=False),  # of the manifest that was pinned
)

models = Table(
    "models",
    METADATA,
    Column("name", String(63), primary_key=True),
    Column("newest", Integer, nullable=False, server_default="0"),  # the highest number that was given
    Column("changes", BigInteger, nullable=False, server_default="0"),  # the last position in its history
    Column("actor", Text, nullable=False),
    Column("created_at", Double, nullable=False),
)

#: A version is never changed; a deleted one keeps its number and its key.
model_versions = Table(
    "model_versions",
    METADATA,
    Column("model", String(63), ForeignKey("models.name"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    # the job and what of it: a checkpoint of a step, or a file that it logged. The job cannot be removed before the version.
    Column("source", String(40), nullable=False),
    Column("step", BigInteger),
    Column("artifact", String(400)),
    Column("path", Text),  # the checkpoint's folder
    Column("digest", String(64)),  # of a logged file; that of a checkpoint is with its pin
    Column("trained", Boolean, nullable=False),  # by Shardyard's loop, and not by a program
    Column("metrics", JSON, nullable=False),  # name → value at its creation
    Column("notes", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("deleted_at", Double),
    Column("idempotency_key", String(255), unique=True),
    Column("body_hash", String(64), nullable=False),
    Index("ix_model_versions_source", "source", sqlite_where=_LIVING, postgresql_where=_LIVING),
)

model_aliases = Table(
    "model_aliases",
    METADATA,
    Column("model", String(63), ForeignKey("models.name"), primary_key=True),
    Column("alias", String(63), primary_key=True),
    Column("number", Integer, nullable=False),
    Column("actor", Text, nullable=False),
    Column("set_at", Double, nullable=False),
)

#: The history of a model: who made, named and deleted what.
model_changes = Table(
    "model_changes",
    METADATA,
    Column("model", String(63), ForeignKey("models.name"), primary_key=True),
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", String(24), nullable=False),  # version_created, version_deleted, alias_set, alias_removed
    Column("data", JSON, nullable=False),
    Column("actor", Text, nullable=False),
    Column("ts", Double, nullable=False),
)
