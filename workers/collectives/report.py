"""What the ranks measured, as values, and which link or node is slow. Imports no torch.

Bandwidths are those of nccl-tests (doc/PERFORMANCE.md): the algorithm bandwidth is the size divided by the time, and the bus bandwidth
multiplies it by what each rank's link carries of that size, so that it can be compared with the hardware's whatever the number of ranks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from types import MappingProxyType
from typing import Any, Final

#: Collective → how often the (n − 1)/n of the size that are not a rank's own pass its link; None: the whole size, once.
_PASSES: Final[Mapping[str, int | None]] = MappingProxyType(
    {
        "broadcast": None,
        "reduce": None,
        "all_reduce": 2,
        "reduce_scatter": 1,
        "all_gather": 1,
        "all_to_all": 1,
        "send_recv": None,
    }
)
COLLECTIVES: Final = tuple(_PASSES)
#: A link is slow below this share of the median bandwidth of all links.
_SLOW: Final = 0.5
#: Fewer links have no median that says what is usual.
_LEAST_LINKS: Final = 3


@dataclass(frozen=True)
class Speed:
    """One collective of `bytes` bytes over an axis of `ranks` ranks. `seconds`: of each round, the slowest rank's."""

    axis: str
    collective: str
    ranks: int
    bytes: int
    seconds: tuple[float, ...]

    @property
    def median_s(self) -> float:
        return median(self.seconds)

    @property
    def spread(self) -> float:
        """The slowest round's time over the fastest one's."""
        return max(self.seconds) / min(self.seconds)

    @property
    def algorithm_bandwidth(self) -> float:
        """Bytes per second."""
        return self.bytes / self.median_s

    @property
    def bus_bandwidth(self) -> float:
        """Bytes per second."""
        passes = _PASSES[self.collective]
        return self.algorithm_bandwidth * (1 if passes is None else passes * (self.ranks - 1) / self.ranks)


@dataclass(frozen=True)
class Link:
    """Two ranks on two nodes, or on one, that sent `bytes` to each other at once. `bandwidth`: bytes per second and direction."""

    ranks: tuple[int, int]
    nodes: tuple[str, str]
    bytes: int
    bandwidth: float

    def __str__(self) -> str:
        (one, other), (here, there) = self.ranks, self.nodes
        return f"rank {one} on {here} and rank {other} on {there}"


@dataclass(frozen=True)
class Finding:
    """Something slow, in words. `rank`: the first rank of the slow node, or at one end of the slow link."""

    rank: int
    message: str


@dataclass(frozen=True)
class Report:
    """All that was measured, and what of it is slow."""

    backend: str
    world_size: int
    nodes: tuple[str, ...]
    speeds: tuple[Speed, ...]
    links: tuple[Link, ...]

    @property
    def slow_nodes(self) -> tuple[str, ...]:
        """Nodes all of whose links are slow, beside the median of the links between the others: on few nodes it has many of all links."""
        found = []
        for node in dict.fromkeys(node for link in self.links for node in link.nodes):
            own = [link for link in self.links if node in link.nodes and len(set(link.nodes)) > 1]
            usual = _usual([link for link in self.links if node not in link.nodes])
            if len(own) > 1 and all(link.bandwidth < _SLOW * usual for link in own):
                found.append(node)
        return tuple(found)

    @property
    def slow_links(self) -> tuple[Link, ...]:
        """Slow links of which neither end is a slow node."""
        links = self._other_links
        return tuple(link for link in links if len(links) >= _LEAST_LINKS and link.bandwidth < _SLOW * _usual(links))

    @property
    def _other_links(self) -> Sequence[Link]:
        """The links of which neither end is a slow node."""
        nodes = set(self.slow_nodes)
        return [link for link in self.links if nodes.isdisjoint(link.nodes)]

    def findings(self) -> list[Finding]:
        """One for each slow node and link."""
        usual = _usual(self._other_links)
        found = []
        for node in self.slow_nodes:
            own = median(link.bandwidth for link in self.links if node in link.nodes)
            message = f"Node {node} is slow: {_rate(own)} to the others; their median link has {_rate(usual)}."
            found.append(Finding(self.nodes.index(node), message))
        for link in self.slow_links:
            message = f"The link of {link} is slow: {_rate(link.bandwidth)}; the median link has {_rate(usual)}."
            found.append(Finding(link.ranks[0], message))
        return found

    def to_json(self) -> dict[str, Any]:
        speeds = [
            {
                "axis": one.axis,
                "collective": one.collective,
                "ranks": one.ranks,
                "bytes": one.bytes,
                "seconds": one.median_s,
                "spread": one.spread,
                "algorithm_bandwidth": one.algorithm_bandwidth,
                "bus_bandwidth": one.bus_bandwidth,
            }
            for one in self.speeds
        ]
        return {
            "backend": self.backend,
            "world_size": self.world_size,
            "nodes": list(self.nodes),
            "speeds": speeds,
            "links": [asdict(link) for link in self.links],
            "findings": [finding.message for finding in self.findings()],
        }


def table(report: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The rows of a report's `to_json`, with a head."""
    head = ("axis", "ranks", "collective", "size", "time", "algorithm bandwidth", "bus bandwidth", "slowest / fastest")
    rows = [
        (
            one["axis"],
            str(one["ranks"]),
            one["collective"],
            size_text(one["bytes"]),
            f"{one['seconds'] * 1e3:.3g} ms",
            _rate(one["algorithm_bandwidth"]),
            _rate(one["bus_bandwidth"]),
            f"{one['spread']:.2f}",
        )
        for one in report["speeds"]
    ]
    return [head, *rows]


def size_text(size: int) -> str:
    """Such as `64 KiB`."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size} B"


def _usual(links: Sequence[Link]) -> float:
    """The median of their bandwidths; 0 without links, beside which none is slow."""
    return median(link.bandwidth for link in links) if links else 0.0


def _rate(bandwidth: float) -> str:
    return f"{bandwidth / 1e9:.3g} GB/s"
