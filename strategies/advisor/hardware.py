"""The hardware that a step's time is estimated for, and how long a message takes on it. Imports no torch.

A rank that sends n bytes by k calls over an axis of r ranks needs

    n / bandwidth + k · ⌈log2 r⌉ · latency

seconds (the α–β model: Hockney 1994; Thakur et al. 2005). A message to a neighbour has one hop in the place of ⌈log2 r⌉. If all r ranks
are on one node, bandwidth and latency are those of a link within a node. Otherwise they are those of a link between nodes:

- Reductions and gathers run in several rings. If h ranks of the axis are on each node, their h network cards carry what passes from node
  to node, so the bandwidth is h times that of one card, and at most that within a node.
- A message to a neighbour on another node passes one card, and those of the other ranks wait for it.
- In an all-to-all each rank sends to the ranks of other nodes, r − h of r − 1, over its own card.
"""

import math
from dataclasses import dataclass
from typing import Literal

#: Who sends to whom in a group: reductions and gathers, messages from each rank to the next, or from each to all others.
Pattern = Literal["rings", "neighbours", "all_to_all"]


@dataclass(frozen=True)
class Link:
    """`bandwidth`: bytes/s that a rank reaches in each direction; `latency`: seconds of a message of no bytes."""

    bandwidth: float
    latency: float


@dataclass(frozen=True)
class Hardware:
    """A cluster of equal nodes.

    `flops`: FLOP/s that a rank reaches in the passes of a model. `memory`: bytes of a GPU, or of a node whose CPU ranks share it; None:
    unknown. `memory_bandwidth`: bytes/s of a rank's own memory; `host`: bytes/s between a device and its host. `block_s`: seconds that
    forward and backward pass of a micro-batch through a block take beside their FLOPs, whatever its size. `hidden`: the share of a time of
    computing that hides communication beside it. `cores`: processors per rank; below 1 ranks share them. `host_memory`: bytes of host
    memory that the ranks of a node's GPUs share; None: unknown. `disk`: bytes/s that a node's ranks together write while they read as much.
    """

    device: Literal["cpu", "cuda"]
    flops: float
    memory: int | None
    memory_bandwidth: float
    host: float
    ranks_per_node: int
    intra: Link
    inter: Link
    block_s: float
    hidden: float
    cores: float = 1.0
    host_memory: int | None = None
    disk: float = math.inf

    def within(self, ranks: int, stride: int) -> bool:
        """Whether every group of `ranks` ranks, each `stride` after the one before, is on one node."""
        return ranks == 1 or self.ranks_per_node % (ranks * stride) == 0

    def sending_s(self, ranks: int, stride: int, size: float, calls: float, pattern: Pattern = "rings") -> float:
        """Seconds in which a rank of such a group sends `size` bytes by `calls` calls, or by that many messages to a neighbour."""
        if ranks == 1:
            return 0.0
        hops = calls * (1 if pattern == "neighbours" else math.ceil(math.log2(ranks)))
        if self.within(ranks, stride):
            return size / self.intra.bandwidth + hops * self.intra.latency
        here = max(1, self.ranks_per_node // stride) if ranks * stride > self.ranks_per_node else 1
        cards, away = (here if pattern == "rings" else 1), 1.0
        if pattern == "all_to_all":
            away = (ranks - here) / (ranks - 1)
        seconds = max(size / self.intra.bandwidth, away * size / (cards * self.inter.bandwidth))
        return seconds + hops * self.inter.latency
