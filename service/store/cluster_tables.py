"""The tables of clusters and their nodes: what they have and use, who used it, the faults on nodes, and cordons."""

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
)

from .metadata import METADATA

clusters = Table(
    "clusters",
    METADATA,
    Column("name", String(63), primary_key=True),
    Column("owner", Text, nullable=False),  # the dispatcher that polled it last
    Column("fresh_until", Double, nullable=False),  # no other cluster may take the name before, by the database's clock
    Column("max_ranks", BigInteger),  # by its dispatcher's settings; null: it does not grow
    Column("cpu_ranks_per_core", Integer),  # by its dispatcher's settings; null: one of an earlier version
)

nodes = Table(
    "nodes",
    METADATA,
    Column("cluster", String(63), primary_key=True),
    Column("id", String(80), primary_key=True),
    Column("host", Text, nullable=False),
    Column("alive", Boolean, nullable=False),
    *(Column(name, Double, nullable=False) for name in ("cpu", "gpu", "cpu_used", "gpu_used")),
    Column("memory_bytes", BigInteger, nullable=False),
    Column("seen_at", Double, nullable=False),
    Column("gangs", JSON, nullable=False, server_default="[]"),  # each gang's share of the node
    Column("gpu_model", String(80), nullable=False, server_default=""),  # as Ray names it; empty: unknown
    Column("host_memory_bytes", BigInteger, nullable=False, server_default="0"),  # for all processes; 0: unknown
    # by Ray's labels; empty: without
    *(Column(name, String(63), nullable=False, server_default="") for name in ("zone", "rail", "domain", "image")),
)

#: A cluster's capacity with all its nodes: from its settings, else the largest that was seen at one time.
capacities = Table(
    "capacities",
    METADATA,
    Column("cluster", String(63), primary_key=True),
    Column("device", String(8), primary_key=True),  # cpu, cuda
    Column("nodes", JSON, nullable=False),  # image → CPUs or GPUs of each node, the largest first
    Column("configured", Boolean, nullable=False),  # by settings
)

node_faults = Table(
    "node_faults",
    METADATA,
    Column("node", String(80), primary_key=True),
    Column("job_id", String(40), ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("cause", String(64), nullable=False),
    Column("at", Double, nullable=False),
    Index(None, "at"),
)

cordons = Table(
    "cordons",
    METADATA,
    Column("node", String(80), primary_key=True),
    Column("since", Double, primary_key=True, autoincrement=False),
    Column("until", Double),  # null: until it is lifted
    Column("by_hand", Boolean, nullable=False),
    Column("actor", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("ended_at", Double),  # lifted before its time
    Column("ended_by", Text),
    Index(None, "since"),
)

#: What a cluster or one of its nodes used in one bucket of time; `cluster_samples.py` says how many buckets are kept.
cluster_samples = Table(
    "cluster_samples",
    METADATA,
    Column("cluster", String(63), primary_key=True),
    Column("node", String(80), primary_key=True),  # empty: the whole cluster
    Column("width", Integer, primary_key=True, autoincrement=False),  # seconds of a bucket
    Column("bucket", BigInteger, primary_key=True, autoincrement=False),  # i begins at i · width unix seconds
    Column("packed", LargeBinary, nullable=False),
    Index(None, "width", "bucket"),
)

#: Which attempts had devices of a node, and when.
gang_nodes = Table(
    "gang_nodes",
    METADATA,
    Column("job_id", String(40), ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("node", String(80), primary_key=True),
    Column("cpu", Double, nullable=False),
    Column("gpu", Double, nullable=False),
    Column("since", Double, nullable=False),
    Column("until", Double),  # null: it still has them
    Index(None, "until"),
    Index(None, "node", "until"),
)

#: Nodes that joined a cluster, were lost, or returned.
node_changes = Table(
    "node_changes",
    METADATA,
    Column("cluster", String(63), primary_key=True),
    Column("node", String(80), primary_key=True),
    Column("at", Double, primary_key=True, autoincrement=False),
    Column("kind", String(16), nullable=False),  # joined, lost, returned
    Column("host", Text, nullable=False),
    Column("message", Text, nullable=False),
    Index(None, "at"),
)

#: What attempts of jobs that were removed took of the devices.
removed_attempts = Table(
    "removed_attempts",
    METADATA,
    Column("job", String(40), primary_key=True),  # which is gone
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("actor", Text, nullable=False),
    Column("device", String(8), nullable=False),
    Column("devices", Integer, nullable=False),
    Column("started_at", Double, nullable=False),
    Column("ended_at", Double, nullable=False),
    Index(None, "ended_at"),
)
