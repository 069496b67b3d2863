"""Decides when a node that fails jobs repeatedly gets no new gangs for a while. `dispatch/node_faults.py` carries the decisions out.

A machine fault is counted against the node of the rank to blame, once per attempt. A job, or a sweep with its trials, that fails about as
often on another node does not cordon a node by itself: its own code may be what fails. So such code cordons at most one node. Each further
cordon of a node lasts twice as long. The last node with devices of a kind stays in use.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from .queue import Device

#: Seconds for which a node's earlier cordons make the next one longer.
MEMORY_S: Final = 7 * 24 * 3600.0

#: Living node → the kinds of devices that it has.
Kinds = Mapping[str, frozenset[Device]]

_DEVICES: Final[tuple[Device, ...]] = ("cpu", "cuda")


@dataclass(frozen=True)
class Limits:
    """`faults` in `window_s` seconds cordon a node for `first_s`, doubled each time up to `max_s`. No faults: never."""

    faults: int = 3
    window_s: float = 3600.0
    first_s: float = 600.0
    max_s: float = 86_400.0

    @property
    def of_one_owner(self) -> int:
        """The most faults on a node that count of a job or sweep which had as many on another one."""
        return max(1, self.faults - 1)

    def lasts_s(self, before: int) -> float:
        """Seconds of a cordon that follows `before` earlier ones."""
        return min(self.max_s, self.first_s * 2.0 ** min(before, 60))


@dataclass(frozen=True)
class Cordon:
    """`until` in unix seconds; None: until it is lifted. `by_hand`: set by an operator; automatic decisions never override it."""

    until: float | None
    by_hand: bool


def due(limits: Limits, owners: Sequence[str], elsewhere: Collection[str]) -> bool:
    """Whether a node's faults cordon it. `owners`: the job or sweep of each. `elsewhere`: those with `of_one_owner` faults on another node.

    One of the latter alone does so only if one fault does.
    """
    most = limits.of_one_owner
    counted = (min(most, faults) if owner in elsewhere else faults for owner, faults in Counter(owners).items())
    return 0 < limits.faults <= sum(counted)


def spared(nodes: Kinds, cordons: Mapping[str, Cordon]) -> list[str]:
    """Cordoned nodes that stay in use: if every node with devices of a kind is cordoned, the one whose cordon ends first."""
    kept: list[str] = []
    for device in _DEVICES:
        having = [node for node, kinds in nodes.items() if device in kinds]
        candidates = [node for node in having if node in cordons and not cordons[node].by_hand]
        if candidates and all(node in cordons and node not in kept for node in having):
            kept.append(min(candidates, key=lambda node: (cordons[node].until or 0.0, node)))
    return kept


def is_last(node: str, nodes: Kinds, cordoned: Collection[str]) -> bool:
    """Whether without this node some kind of device would not be available on any node in use."""
    others = {kind for name, kinds in nodes.items() if name != node and name not in cordoned for kind in kinds}
    return not nodes.get(node, frozenset()) <= others


def format_causes(causes: Sequence[str], limits: Limits) -> str:
    """The reason why a node is cordoned, as text."""
    distinct = ", ".join(sorted(set(causes)))
    return f"{len(causes)} faults of machines within {limits.window_s / 60:.0f} min ({distinct})"
