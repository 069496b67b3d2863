"""Machines of a cluster, and cordons."""

from pydantic import Field

from .base import Timestamp, Value
from .system import NodeUse


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
    gpu_model: str = ""
    host_memory_bytes: int = 0
    zone: str = ""
    rail: str = ""
    domain: str = ""
    image: str = ""


class Cordon(Value):
    """A machine on which no new gang is placed."""

    node: str
    since: Timestamp
    until: Timestamp | None = Field(None, description="End of the cordon; null if it stays until an operator lifts it.")
    by_hand: bool = Field(False, description="Whether an operator cordoned the machine; false if its faults did.")
    actor: str = ""
    message: str = ""
    ended_at: Timestamp | None = Field(None, description="Time at which the cordon was lifted early.")
    ended_by: str | None = None


class Cordons(Value):
    """Cordons, newest first."""

    items: list[Cordon]


class DeviceCapacity(Value):
    """Devices of one kind on a machine, counted in ranks: one per GPU, SHARDYARD_CPU_RANKS_PER_CORE per core."""

    kind: str = Field(description="Kind of device: `cpu` or `cuda`.")
    all: int
    free: int


class ElasticRanks(Value):
    """Smallest and largest number of ranks of an elastic job."""

    min: int
    max: int


class NodeAllocation(Value):
    """Devices of a machine that one job's gang occupies."""

    job: str
    name: str
    state: str
    ranks: int = Field(description="Number of devices, including those of hot spares.")
    elastic: ElasticRanks | None = Field(None, description="Range of ranks of an elastic job; null for other jobs.")


class Node(Value):
    """One machine of the cluster."""

    id: str
    host: str
    cluster: str = Field(
        description="Name of the machine's cluster (SHARDYARD_CLUSTER). Several clusters can share a database."
    )
    alive: bool
    cpu: float
    gpu: float
    cpu_used: float = 0
    gpu_used: float = 0
    memory_bytes: int = 0
    host_memory_bytes: int = Field(0, description="Memory of the machine for all its processes; 0: unknown.")
    gpu_model: str = Field("", description="Model of its GPUs, as Ray names it; empty: unknown, or no GPU.")
    zone: str = Field("", description="Its label `ray.io/availability-zone`; empty: it has none.")
    rail: str = Field(
        "", description="Its label `shardyard.io/rail`, nodes with common leaf switches; empty: it has none."
    )
    domain: str = Field("", description="Its label `ray.io/gpu-domain`, an NVLink domain; empty: it has none.")
    image: str = Field(
        "",
        description="Its label `shardyard.io/image`, the name of the image that its Ray worker runs; empty: the cluster's own image.",
    )
    seen_at: Timestamp | None = None
    faults: int = Field(
        0, description="Number of attempts that failed because of this machine within SHARDYARD_CORDON_WINDOW_S."
    )
    cordon: Cordon | None = Field(None, description="The machine's active cordon; null if it has none.")
    in_use: bool = Field(
        True,
        description="Whether new gangs can be placed on the machine. If faults cordoned every machine, one stays in use.",
    )
    use: NodeUse | None = Field(
        None, description="What the machine's processes use; null if no gang has sampled it within the last minute."
    )
    devices: list[DeviceCapacity] = Field(default_factory=list)
    held: list[NodeAllocation] = Field(default_factory=list, description="Gangs on the machine, the largest first.")
    held_more: int = Field(0, description="Number of gangs that `held` leaves out.")


class Nodes(Value):
    """The machines of the cluster."""

    items: list[Node]
