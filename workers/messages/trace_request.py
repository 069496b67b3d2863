"""A request for a step trace: plain data on its way to the trainers. Imports neither torch nor Ray."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from .json_codec import read

#: Maximum number of steps in a trace.
MOST_STEPS: Final = 20
#: Maximum number of ranks that emit their part of a trace.
TRACED_RANKS: Final = 64

#: Categories in which a rank waits for others.
WAITS: Final = ("send", "receive", "collective")


@dataclass(frozen=True)
class Trace:
    """A step trace. Requests with the same `id` start it once. It has `steps` consecutive steps, 1 to `MOST_STEPS`."""

    id: str
    steps: int

    def __post_init__(self) -> None:
        if not 1 <= self.steps <= MOST_STEPS:
            raise ValueError(f"a trace has 1 to {MOST_STEPS} steps, not {self.steps}")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Raises ValueError for unknown or missing fields, too many steps."""
        request: Self = read(cls, data)
        return request


def traced_ranks(world_size: int, most: int = TRACED_RANKS) -> list[int]:
    """The ranks that emit a trace: all, or `most` of them spread evenly, rank 0 included."""
    if world_size <= most:
        return list(range(world_size))
    return [number * world_size // most for number in range(most)]


def own_seconds(event: dict[str, Any]) -> float:
    """Seconds of a `trace` event's step in which its rank worked, without its waits for other ranks."""
    return float(event["seconds"]) - sum(float(event["sums"].get(category, 0.0)) for category in WAITS)


def slowest_rank(events: Iterable[dict[str, Any]]) -> int | None:
    """The rank with the most compute time over all steps of a trace; None without events. Under a pipeline a stage's share
    of the model counts as well.
    """
    sums: dict[int, float] = {}
    for event in events:
        sums[event["rank"]] = sums.get(event["rank"], 0.0) + own_seconds(event)
    return max(sums, key=lambda rank: sums[rank], default=None)
