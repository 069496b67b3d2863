"""Whether the snapshots of all ranks fit in the memory of their hosts: a pure function of what the ranks report. Imports no torch.

Rules that it keeps: every rank gets the same answer; memory that ranks share is counted once for all of them; what is already
allocated is not counted again.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ..host_memory import MemoryLimit

#: Memory that must stay free: this part of a limit, but no more than the snapshots themselves need.
MARGIN: Final = 1 / 20


@dataclass(frozen=True)
class Demand:
    """What one rank reports. Its replicas take as much memory as its segments, where the actor of rank `holder` is."""

    segments: int  # bytes of its segments
    missing: int  # of them not allocated yet
    limits: tuple[MemoryLimit, ...]
    holder: int | None = None
    replicas: Mapping[int, int] = field(default_factory=dict)  # rank → bytes of its replicas that this rank's actor has
    later: int = 0  # bytes that it will need for the copy from which a checkpoint is written


@dataclass(frozen=True)
class _Need:
    """What is needed of the memory under one limit."""

    limit: MemoryLimit
    ranks: tuple[int, ...]
    bytes: int

    @property
    def lacking(self) -> int:
        margin = min(int(MARGIN * self.limit.total), self.bytes)
        return self.bytes + margin - self.limit.free


def shortage(demands: Sequence[Demand]) -> str | None:
    """Why the snapshots of these ranks do not fit, with numbers; None if they fit. `demands[rank]`."""
    worst = max(_needs(demands), key=lambda need: need.lacking, default=None)
    if worst is None or worst.lacking <= 0:
        return None
    limit, others = worst.limit, len(worst.ranks) - 1
    return (
        f"Snapshots and checkpoints on the node of rank {worst.ranks[0]} and {others} more need {gigabytes(worst.bytes)} "
        f"beside what they have, and {gigabytes(max(limit.free, 0))} of {gigabytes(limit.total)} are free ({limit.name})"
    )


def gigabytes(size: int) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 1e8 else f"{size / 1e6:,.1f} MB"


def _needs(demands: Sequence[Demand]) -> list[_Need]:
    """By limit, what is needed under it and not allocated yet."""
    limits: dict[str, MemoryLimit] = {}
    needed, ranks = Counter[str](), dict[str, list[int]]()
    for rank, demand in enumerate(demands):
        for limit in demand.limits:
            known = limits.setdefault(limit.key, limit)
            limits[limit.key] = min(known, limit, key=lambda one: one.free)  # they are read one after the other
            needed[limit.key] += demand.missing + demand.later
            ranks.setdefault(limit.key, []).append(rank)
        if demand.holder is not None:
            holder = demands[demand.holder]
            missing = max(demand.segments - holder.replicas.get(rank, 0), 0)
            needed.update({limit.key: missing for limit in holder.limits})
    return [_Need(limit, tuple(ranks[key]), needed[key]) for key, limit in limits.items() if needed[key]]
