"""The system metrics: the only names by which the use of nodes and ranks is sampled, stored and read, each with its unit.

Needs nothing else, because all floors read it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

#: Of a node, by all of its processes.
NODE: Final[Mapping[str, str]] = {
    "cpu": "percent of all CPUs",
    "memory_used": "bytes",
    "memory_available": "bytes",
    "memory_limit": "bytes",
    "memory_limit_used": "bytes",
    "disk_read": "bytes/s",
    "disk_write": "bytes/s",
    "disk_full": "percent",
    "network_receive": "bytes/s",
    "network_send": "bytes/s",
}
#: Of a rank: its processes, and its GPU.
RANK: Final[Mapping[str, str]] = {
    "cpu": "percent of one CPU",
    "memory": "bytes",
    "gpu_utilization": "percent",
    "gpu_memory": "bytes",
    "gpu_power": "W",
    "gpu_temperature": "°C",
    "gpu_clock": "MHz",
    "gpu_ecc_errors": "errors",
    "gpu_xid": "number of the error",
    "gpu_lost": "1 if lost",
    "nvlink_send": "bytes/s",
    "nvlink_receive": "bytes/s",
}
#: Of a node's GPU: those of its rank that are kept by node too.
GPU: Final[Mapping[str, str]] = {name: RANK[name] for name in ("gpu_utilization", "gpu_memory", "gpu_power")}
#: `node/…` and `rank/…` → unit.
UNITS: Final[Mapping[str, str]] = {
    **{f"node/{name}": unit for name, unit in NODE.items()},
    **{f"rank/{name}": unit for name, unit in RANK.items()},
}


@dataclass
class Reading:
    """What was read at one time: values, and counters that only grow, of which the change per second is the value."""

    values: dict[str, float] = field(default_factory=dict)
    counters: dict[str, float] = field(default_factory=dict)


class Rates:
    """The change of counters per second, from one reading to the next."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[float, float]] = {}  # time and count

    def of(self, reading: Reading, now: float) -> dict[str, float]:
        """The values of a reading at `now` (s), and the rates of its counters.

        Left out: a counter that is new, or that is lower than before, because what it counted has started again.
        """
        before, self._before = self._before, {name: (now, count) for name, count in reading.counters.items()}
        found = dict(reading.values)
        for name, count in reading.counters.items():
            then, counted = before.get(name, (now, count))
            if now > then and count >= counted:
                found[name] = (count - counted) / (now - then)
        return {name: float(f"{value:.4g}") for name, value in found.items()}
