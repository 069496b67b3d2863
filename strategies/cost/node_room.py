"""Whether the ranks of a plan have room in the memory of a cluster's nodes, as far as it is known. Pure; imports no torch.

A rank needs its plan's peak and what its process holds beside tensors. A GPU has memory of its own. CPU ranks share the memory of their
node, and what a plan offloads is in it too. The answer is "no" only if no choice of nodes has room: a node of unknown memory has.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from .plan import Plan
from .snapshots import SNAPSHOTS

#: What a process holds on a GPU beside its tensors: the CUDA context, cuBLAS' workspace and NCCL's buffers. An assumption.
GPU_RESERVED_BYTES: Final = 2 * 2**30
#: What a CPU rank holds in host memory beside its tensors: two Python processes, of which one has torch. Measured: 300 to 500 MB.
CPU_RESERVED_BYTES: Final = 300 * 10**6


@dataclass(frozen=True)
class Room:
    """A node's devices of one kind. `memory`: bytes of each GPU, or of the node if its CPU ranks `share` them; None: unknown."""

    ranks: int
    memory: int | None
    shared: bool = False

    def holds(self, needed: int) -> int:
        """The ranks that have room, each needing this many bytes."""
        if self.memory is None:
            return self.ranks
        if self.shared:
            return min(self.ranks, self.memory // needed)
        return self.ranks if needed <= self.memory else 0


@dataclass(frozen=True)
class Verdict:
    """Whether a plan fits; None: unknown. `needed`: bytes of one rank, of which `reserved` are beside its tensors.

    `memory`: bytes of the largest GPU or node that is known; None: of none. `shared`: the node's CPU ranks share it.
    """

    fits: bool | None
    needed: int
    reserved: int
    memory: int | None = None
    shared: bool = False


@dataclass(frozen=True)
class Cluster:
    """The known nodes' devices of one kind; `unseen`: ranks on nodes that may come and of which nothing is known."""

    rooms: Sequence[Room]
    unseen: int = 0

    @property
    def ranks(self) -> int:
        return sum(room.ranks for room in self.rooms) + self.unseen


def verdict(plan: Plan, device: str, ranks: int, clusters: Sequence[Cluster]) -> Verdict:
    """Whether `ranks` ranks of `plan` have room on one of the clusters."""
    reserved = GPU_RESERVED_BYTES if device == "cuda" else CPU_RESERVED_BYTES
    host = sum(held for what, held in plan.host.items() if what != SNAPSHOTS)
    needed = plan.peak + reserved + (0 if device == "cuda" else host)
    known = [room for cluster in clusters for room in cluster.rooms if room.memory is not None]
    memory = max((room.memory or 0 for room in known), default=None)
    found = [_fits(needed, ranks, cluster) for cluster in clusters]
    fits = True if True in found else None if None in found or not found else False
    return Verdict(fits, needed, reserved, memory, device != "cuda")


def _fits(needed: int, ranks: int, cluster: Cluster) -> bool | None:
    if cluster.ranks < ranks:
        return None  # too few devices, whatever their memory: another check's answer
    if sum(room.holds(needed) for room in cluster.rooms if room.memory is not None) >= ranks:
        return True
    return None if sum(room.holds(needed) for room in cluster.rooms) + cluster.unseen >= ranks else False
