"""Machines of a cluster, and cordons."""

from pydantic import Field

from .base import Timestamp, Value


class Allocation(Value):
    """What one gang has of a machine."""

    gang: str
    cpu: float
    gpu: float


class ClusterNode(Value):
    """A machine as a cluster reports it: whole CPUs and GPUs, how much of them is taken, and by which gangs."""

    id: str
    host: str
    alive: bool
    cpu: float
    gpu: float
    cpu_used: float = 0.0
    gpu_used: float = 0.0
    memory_bytes: int = 0
    gangs: list[Allocation] = Field(default_factory=list)


class Cordon(Value):
    """New gangs keep away from a machine."""

    node: str
    since: Timestamp
    until: Timestamp | None = Field(None, description="null: until somebody lifts it.")
    by_hand: bool = Field(False, description="An operator's word; else the machine's faults brought it about.")
    actor: str = ""
    message: str = ""
    ended_at: Timestamp | None = Field(None, description="Lifted before its time.")
    ended_by: str | None = None


class Cordons(Value):
    """Cordons, the newest first."""

    items: list[Cordon]


class Devices(Value):
    """A machine's devices of one kind, in ranks: a GPU takes one, a core SHARDYARD_CPU_RANKS_PER_CORE."""

    kind: str = Field(description="`cpu` or `cuda`.")
    all: int
    free: int


class Replicas(Value):
    min: int
    max: int


class Holding(Value):
    """What one job's gang has of a machine."""

    job: str
    name: str
    state: str
    ranks: int = Field(description="Devices, those of its spares too.")
    elastic: Replicas | None = Field(None, description="Between which numbers of replicas the job may go on.")


class Node(Value):
    """One machine of the cluster."""

    id: str
    host: str
    cluster: str = Field(description="Its cluster's name (SHARDYARD_CLUSTER): several may share a database.")
    alive: bool
    cpu: float
    gpu: float
    cpu_used: float = 0
    gpu_used: float = 0
    memory_bytes: int = 0
    seen_at: Timestamp | None = None
    faults: int = Field(0, description="Attempts that it broke lately (SHARDYARD_CORDON_WINDOW_S).")
    cordon: Cordon | None = Field(None, description="What keeps new gangs away from it now.")
    in_use: bool = Field(
        True, description="New gangs may come to it; true of the last one, too, when faults cordoned all."
    )
    devices: list[Devices] = Field(default_factory=list)
    held: list[Holding] = Field(default_factory=list, description="Who has them, the largest first.")
    held_more: int = Field(0, description="Gangs beyond those in `held`.")


class Nodes(Value):
    items: list[Node]
