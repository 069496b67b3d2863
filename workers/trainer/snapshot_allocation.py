"""The memory of a gang's snapshots: all ranks get theirs before the first snapshot, or no rank takes any.

Rules that it keeps: the decision is the same on all ranks, because a repair needs the snapshots of all of them; a lack of memory costs
the snapshots, and never the run.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import torch.distributed as dist

from ...strategies.telemetry.current import wait_on
from ..host_memory import MemoryLimit, memory_limits
from ..snapshot.host_room import Demand, shortage
from .segment_writer import SegmentWriter

T = TypeVar("T")

REMEDY: Final = "A repair continues from the newest checkpoint. Give the ranks' node or pod more memory; snapshot.every: 0 needs no memory"


@dataclass(frozen=True)
class Allocation:
    """Allocates the segments of all ranks, or of none.

    `holder`: the rank whose actor holds replicas of this rank's snapshots. `replicas`: rank → bytes of its replicas that this rank's
    actor has already. `later`: bytes that this rank will take for its first checkpoint.
    """

    holder: int | None = None
    replicas: Mapping[int, int] = field(default_factory=dict)
    limits: Callable[[], tuple[MemoryLimit, ...]] = memory_limits
    later: Callable[[], int] = lambda: 0

    def refusal(self, segments: SegmentWriter) -> str | None:
        """Allocate this rank's segments. Returns why no rank may take snapshots; None if all may. Collective."""
        mine = Demand(segments.bytes, segments.missing, self.limits(), self.holder, self.replicas, self.later())
        why = shortage(_gathered(mine)) or _first_error(_gathered(_allocated(segments)))
        return None if why is None else f"{why}. {REMEDY}."


def _allocated(segments: SegmentWriter) -> str | None:
    """Allocate; returns the error, if there is one."""
    try:
        segments.allocate()
    except OSError as error:
        return str(error)
    return None


def _first_error(errors: Sequence[str | None]) -> str | None:
    failed = ((rank, error) for rank, error in enumerate(errors) if error is not None)
    return next((f"Rank {rank} got no memory for its snapshots: {error}" for rank, error in failed), None)


def _gathered(mine: T) -> list[T]:
    everyone: list[Any] = [mine] * dist.get_world_size()
    wait_on(lambda: dist.all_gather_object(everyone, mine), "all_gather")
    return everyone
