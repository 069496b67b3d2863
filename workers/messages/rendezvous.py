"""How the ranks of a gang find each other and their snapshots: plain data between supervisor, rank actor and trainer."""

from dataclasses import asdict, dataclass
from typing import Any, Literal, Self


@dataclass(frozen=True)
class RankAssignment:
    """One rank's place in one generation of its gang."""

    rank: int
    world_size: int
    local_rank: int  # among the gang's ranks on the same node
    master_host: str  # rank 0's address, where its TCPStore listens
    master_port: int
    master_fd: int | None = None  # rank 0 only: the store's listening socket, opened before its port was announced
    generation: int = 1
    interface: str | None = (
        None  # network interface for gloo and NCCL if the node's environment names none; None: their default
    )
    device: Literal["cpu", "cuda"] = "cpu"
    timeout_s: float = 600.0  # of every collective
    segments: tuple[int, ...] = ()  # descriptors of the rank's snapshot memory (`shared_memory.py`)
    notifier: int | None = None  # descriptor by which it announces sealed snapshots (`replication.py`)
    holder: int | None = (
        None  # the rank on another node whose actor holds replicas of its snapshots; None: there are none
    )
    replicas: tuple[tuple[int, int], ...] = ()  # rank, and bytes of its replicas that this rank's actor has already
    restore: int | None = None  # step of the snapshot that all ranks restore; None: from a checkpoint, or the start
    local_world_size: int = 1  # of the gang's ranks on the same node
    node_rank: int = 0  # of its node, in the order of their first ranks
    nodes: int = 1  # of the gang
    sample_s: float = 0.0  # interval at which its actor samples what it uses; 0: never

    @property
    def copied(self) -> bool:
        """Whether its snapshots are copied to another node."""
        return self.holder is not None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Raises TypeError for unknown or missing fields."""
        replicas = tuple((rank, size) for rank, size in data.get("replicas", ()))
        return cls(**{**data, "segments": tuple(data.get("segments", ())), "replicas": replicas})


@dataclass(frozen=True)
class Reservation:
    """What a rank has reserved: its node, and for rank 0 the port of the store that its trainer will hold."""

    rank: int
    node: str
    host: str
    port: int | None
    interface: str | None
    generation: int
    pid: int  # of the actor; its neighbours open its snapshot memory through /proc/pid
    slots: tuple[int, ...]  # its descriptors of that memory


@dataclass(frozen=True)
class SnapshotHandle:
    """A rank's snapshot memory, held by process `pid` of `node` as `fds`."""

    node: str
    pid: int
    fds: tuple[int, ...]
