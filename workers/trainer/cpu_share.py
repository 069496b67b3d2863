"""This rank's share of its node's cores, for what runs on the host. Ranks that may run on the same core share it equally.

Ray starts the process of a GPU rank with one thread. An optimizer on the host then uses one core of its node and leaves the others idle.
"""

import os
import socket
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

from ..host_memory import ROOT


@dataclass(frozen=True)
class RankCores:
    """The node on which a rank runs, and the cores on which it may. `quota`: cores' worth of time that the node's ranks have together."""

    node: str
    cores: frozenset[int]
    quota: float | None = None


def threads_of(rank: int, ranks: Sequence[RankCores]) -> int:
    """How many threads rank `rank` of all `ranks` may use so that those of a node have no more than cores; at least one."""
    own = ranks[rank]
    takers = Counter(core for other in ranks if other.node == own.node for core in other.cores)
    # Summed by the number of takers, because thirds do not add up to one in floating point.
    shared = Counter(takers[core] for core in own.cores)
    whole = sum(count // number for number, count in shared.items())
    if own.quota is not None:
        whole = min(whole, int(own.quota / sum(other.node == own.node for other in ranks)))
    return max(1, whole)


def quota(root: Path = ROOT) -> float | None:
    """How many cores' worth of time this container's cgroup may use; None if there is no limit, or cgroups of version 1."""
    try:
        most, period = (root / "sys/fs/cgroup/cpu.max").read_text().split()
        return None if most == "max" else int(most) / int(period)
    except (OSError, ValueError):
        return None


def use_all_own_cores(device: torch.device) -> None:
    """Let torch use this rank's share of the cores. Collective over the world. Ranks that train on CPUs keep their one thread."""
    if device.type == "cpu":
        return
    own = RankCores(socket.gethostname(), frozenset(os.sched_getaffinity(0)), quota())
    ranks = [own] * dist.get_world_size()
    dist.all_gather_object(ranks, own)
    torch.set_num_threads(threads_of(dist.get_rank(), ranks))
