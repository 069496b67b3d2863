"""Whether the ranks of a plan have room in the memory of a cluster's nodes, as far as it is known. Pure; imports no torch.

A rank needs its plan's peak and what its process holds beside tensors. A GPU has memory of its own, and what its rank offloads is in the
host memory that the ranks of its node share. CPU ranks share the memory of their node, and what a plan offloads is in it too. The answer
is "no" only if no choice of nodes has room: a node of unknown memory has.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from .plan import Plan

#: What a process holds on a GPU beside its tensors: the CUDA context, cuBLAS' workspace and NCCL's buffers. An assumption.
GPU_RESERVED_BYTES: Final = 2 * 2**30
#: What a CPU rank holds in host memory beside its tensors: two Python processes, of which one has torch. Measured: 300 to 500 MB.
#: A GPU's rank holds as much or more.
CPU_RESERVED_BYTES: Final = 300 * 10**6


@dataclass(frozen=True)
class Room:
    """A node's devices of one kind. `memory`: bytes of each GPU, or of the node if its CPU ranks `share` them; None: unknown.

    `host`: bytes of host memory that the ranks of its GPUs share; None: unknown.
    """

    ranks: int
    memory: int | None
    shared: bool = False
    host: int | None = None

    def holds(self, needed: int, on_host: int = 0) -> int:
        """The ranks that have room, each needing this many bytes, and beside a GPU `on_host` bytes of host memory."""
        ranks = self.ranks if self.host is None or not on_host else min(self.ranks, self.host // on_host)
        if self.memory is None:
            return ranks
        if self.shared:
            return min(ranks, self.memory // needed)
        return ranks if needed <= self.memory else 0


@dataclass(frozen=True)
class HostNeed:
    """What a GPU rank needs of its node's host memory, in bytes, of which `reserved` are beside its tensors; 0: nothing is offloaded.

    `memory`: that of the known node which has most per rank, and `ranks` ranks share it; None: it is known of no node.
    """

    needed: int = 0
    reserved: int = 0
    memory: int | None = None
    ranks: int = 1

    @property
    def share(self) -> float:
        """The share of that memory which the ranks need: above 1 they have no room. 0 if it is not known."""
        return self.needed * self.ranks / self.memory if self.memory else 0.0


@dataclass(frozen=True)
class Verdict:
    """Whether a plan fits; None: unknown. `needed`: bytes of one rank, of which `reserved` are beside its tensors.

    `memory`: bytes of the largest GPU or node that is known; None: of none. `shared`: the node's CPU ranks share it. `host`: what a rank
    on a GPU needs beside it.
    """

    fits: bool | None
    needed: int
    reserved: int
    memory: int | None = None
    shared: bool = False
    host: HostNeed = field(default_factory=HostNeed)

    @property
    def share(self) -> float:
        """The share of the memory of which most is needed, a GPU's or its host's: above 1 a rank has no room."""
        return max(self.needed / self.memory if self.memory else 0.0, self.host.share)

    @property
    def lacks_host(self) -> bool:
        """Whether host memory alone is short, and not a GPU's."""
        return self.host.share > 1 and (self.memory is None or self.needed <= self.memory)


@dataclass(frozen=True)
class Cluster:
    """The known nodes' devices of one kind; `unseen`: ranks on nodes that may come and of which nothing is known."""

    rooms: Sequence[Room]
    unseen: int = 0

    @property
    def ranks(self) -> int:
        return sum(room.ranks for room in self.rooms) + self.unseen

    @property
    def without_host(self) -> "Cluster":
        """The same nodes, as if their GPUs' host memory were not known."""
        return replace(self, rooms=[replace(room, host=None) for room in self.rooms])


def verdict(plan: Plan, device: str, ranks: int, clusters: Sequence[Cluster]) -> Verdict:
    """Whether `ranks` ranks of `plan` have room on one of the clusters."""
    on_gpus = device == "cuda"
    reserved = GPU_RESERVED_BYTES if on_gpus else CPU_RESERVED_BYTES
    needed = plan.peak + reserved + (0 if on_gpus else sum(plan.offloaded.values()))
    rooms = [room for cluster in clusters for room in cluster.rooms]
    memory = max((room.memory for room in rooms if room.memory is not None), default=None)
    host = _host_need(plan, ranks, rooms) if on_gpus else HostNeed()
    found = [_fits(needed, host.needed, ranks, cluster) for cluster in clusters]
    fits = True if True in found else None if None in found or not found else False
    return Verdict(fits, needed, reserved, memory, not on_gpus, host)


def _host_need(plan: Plan, ranks: int, rooms: Sequence[Room]) -> HostNeed:
    if not plan.offloaded:
        return HostNeed()
    known = [(room.host, min(ranks, room.ranks)) for room in rooms if room.host is not None]
    memory, sharing = max(known, key=lambda one: one[0] / one[1], default=(None, 1))
    return HostNeed(sum(plan.offloaded.values()) + CPU_RESERVED_BYTES, CPU_RESERVED_BYTES, memory, sharing)


def _fits(needed: int, on_host: int, ranks: int, cluster: Cluster) -> bool | None:
    if cluster.ranks < ranks:
        return None  # too few devices, whatever their memory: another check's answer
    if sum(room.holds(needed, on_host) for room in cluster.rooms if room.memory is not None) >= ranks:
        return True
    return None if sum(room.holds(needed, on_host) for room in cluster.rooms) + cluster.unseen >= ranks else False
