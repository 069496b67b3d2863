"""The tables of system metrics: of each job over time, and of each node now."""

from sqlalchemy import JSON, BigInteger, Column, Double, ForeignKey, Integer, LargeBinary, String, Table

from .metadata import METADATA

#: All system metrics of a job in one bucket of time; `system_samples.py` says how many buckets are kept.
system_samples = Table(
    "system_samples",
    METADATA,
    Column("job_id", String(40), ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("width", Integer, primary_key=True, autoincrement=False),  # seconds of a bucket
    Column("bucket", BigInteger, primary_key=True, autoincrement=False),  # i begins at i · width unix seconds
    Column("packed", LargeBinary, nullable=False),
)

#: What a node, or a GPU of one (`node/gpu`), uses, as the gang that sampled it last saw it.
node_uses = Table(
    "node_uses",
    METADATA,
    Column("node", String(80), primary_key=True),
    Column("at", Double, nullable=False, index=True),  # stored, by the dispatcher's clock
    Column("values", JSON, nullable=False),
)
