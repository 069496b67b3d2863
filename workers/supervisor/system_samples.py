"""Gathers the ranks' system samples into one event about every five seconds, however many ranks there are.

An event is due when all ranks have reported, or when one reports again. A successor begins without what was gathered: at most one
sample of each rank is lost with a supervisor.
"""

from collections.abc import Mapping
from typing import Any, Final

from ..messages.event import SystemEvent
from ..messages.system_metrics import GPU, RANK

#: Of larger gangs only the nodes are reported.
MOST_RANKS: Final = 4096
#: GPUs are reported by node in the first of as many events: the ranks have their values in each.
GPUS_EVERY: Final = 6


class SystemSamples:
    """The samples since the last event."""

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size
        self._ranks: dict[int, Mapping[str, float]] = {}
        self._nodes: dict[str, Mapping[str, float]] = {}
        self._gpus: dict[str, Mapping[str, float]] = {}  # by `node/gpu`
        self._events = 0

    def take(self, rank: int, node: str | None, data: Mapping[str, Any]) -> list[SystemEvent]:
        """Add one rank's sample (`RankSystemEvent` as JSON); returns the event that is due before or with it."""
        due = [self._event()] if rank in self._ranks else []
        self._ranks[rank] = data.get("rank") or {}
        if node is not None and data.get("node"):
            self._nodes[node] = data["node"]
        if node is not None and data.get("gpu") is not None:
            self._gpus[f"{node}/{data['gpu']}"] = {
                name: self._ranks[rank][name] for name in GPU if name in self._ranks[rank]
            }
        if len(self._ranks) == self.world_size:
            due.append(self._event())
        return due

    def flush(self) -> list[SystemEvent]:
        """At a generation's end: the event of what is left."""
        return [self._event()] if self._ranks else []

    def _event(self) -> SystemEvent:
        ranks, nodes = self._ranks, self._nodes
        if self._events % GPUS_EVERY == 0:
            nodes |= {gpu: use for gpu, use in self._gpus.items() if use}
        self._ranks, self._nodes, self._gpus = {}, {}, {}
        self._events += 1
        if self.world_size > MOST_RANKS:
            return SystemEvent(nodes=nodes)
        columns = {name: [ranks.get(rank, {}).get(name) for rank in range(self.world_size)] for name in RANK}
        known = {name: tuple(column) for name, column in columns.items() if any(value is not None for value in column)}
        return SystemEvent(nodes=nodes, ranks=known)
