"""What each rank of a job does."""

from typing import Any

from pydantic import Field

from . import dataframes
from .base import Value


class SlowRank(Value):
    """A rank whose own work takes longer than its peers', so that the others wait for it."""

    rank: int
    busy_s: float = Field(description="Seconds of own work in each step.")
    usual_s: float = Field(description="The median of its peers: ranks with an equal share of the work.")
    message: str = Field(description="One sentence for people.")


class RankSample(Value):
    """What each rank did lately: lists by rank, means over `steps` steps up to `step`; null where it is not known."""

    n: int = Field(description="Its place among the job's samples.")
    ts: float = Field(description="Unix seconds.")
    attempt: int
    step: int
    steps: int
    axes: dict[str, int] | None = Field(
        description="Mesh axis → degree, the outermost first: ranks count through them, the last one fastest."
    )
    parts: list[int] | None = Field(description="By rank: those with the same number do equal work.")
    step_s: list[float | None] = Field(description="Seconds of a step.")
    busy_s: list[float | None] = Field(description="Of those, the rank's own work.")
    wait_s: list[float | None] = Field(description="Of those, waiting for other ranks.")
    memory: list[int | None] = Field(description="Bytes.")
    memory_of: str | None = Field(description="`allocated` (by torch, on CUDA), or `resident` (the trainer's process).")
    nodes: list[str] = Field(description="Ids of the machines.")
    node_of: list[int | None] = Field(description="By rank: place in `nodes`.")
    slow: SlowRank | None = Field(description="The rank that makes the others wait, if one does.")

    def place(self, rank: int) -> dict[str, int]:
        """A rank's coordinate on each axis; empty where the axes are not known."""
        found: dict[str, int] = {}
        for axis, degree in reversed((self.axes or {}).items()):
            rank, found[axis] = divmod(rank, degree)
        return {axis: found[axis] for axis in self.axes or {}}


class Ranks(Value):
    """Samples of what each rank does, newest first; `next` is the `before` of the next request, null at the end.

    Of a long job the oldest are thinned out: `first` and `last` are places of samples that are there, between them some are not.
    """

    items: list[RankSample]
    first: int | None = Field(None, description="Place of the oldest sample.")
    last: int | None = Field(None, description="Place of the newest sample.")
    next: int | None = None

    def to_pandas(self) -> Any:
        """As a `pandas.DataFrame` by attempt, step and rank, with the rank's place on each axis. Needs the extra `pandas`."""
        return dataframes.of_ranks(self)
