"""Metrics of a job's ranks."""

from collections.abc import Iterator
from typing import Any

from pydantic import Field

from . import dataframes
from .base import Value


class SlowRank(Value):
    """A rank that is slower than its peers, so that the others wait for it."""

    rank: int
    busy_s: float = Field(description="Seconds per step in which the rank itself works.")
    usual_s: float = Field(description="Median of that time over its peers, the ranks with an equal share of the work.")
    message: str = Field(description="The finding as one sentence.")


class RankMetrics(Value):
    """Metrics of every rank: lists indexed by rank, means over `steps` steps up to `step`; null where a value is not known."""

    position: int = Field(description="Position among the job's samples.")
    ts: float = Field(description="Time in Unix seconds.")
    attempt: int
    step: int
    steps: int
    timed_steps: int | None = Field(
        None,
        description="Number of steps in the means of `busy_s` and `wait_s`, which GPUs measure in some steps only; null: all.",
    )
    axes: dict[str, int] | None = Field(
        description="Mesh axis → degree, the outermost first. The last axis varies fastest with the rank."
    )
    parts: list[int] | None = Field(description="Work group by rank. Ranks of one group do equal work.")
    step_s: list[float | None] = Field(description="Seconds per step, by rank.")
    busy_s: list[float | None] = Field(description="Seconds per step in which the rank itself works, by rank.")
    wait_s: list[float | None] = Field(description="Seconds per step in which the rank waits for other ranks, by rank.")
    memory: list[int | None] = Field(description="Memory in bytes, by rank.")
    memory_of: str | None = Field(
        description="What `memory` measures: `allocated` (by torch, on CUDA) or `resident` (the trainer process)."
    )
    nodes: list[str] = Field(description="Ids of the machines on which the ranks run.")
    node_of: list[int | None] = Field(description="Index in `nodes`, by rank.")
    slow: SlowRank | None = Field(description="The rank for which the others wait; null if there is none.")

    def place(self, rank: int) -> dict[str, int]:
        """Returns a rank's coordinate on each axis; empty if the axes are not known."""
        found: dict[str, int] = {}
        for axis, degree in reversed((self.axes or {}).items()):
            rank, found[axis] = divmod(rank, degree)
        return {axis: found[axis] for axis in self.axes or {}}

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yields one mapping per rank, with its coordinates by axis."""
        for rank, step_s in enumerate(self.step_s):
            node = self.node_of[rank]
            yield {
                "attempt": self.attempt,
                "step": self.step,
                "rank": rank,
                "ts": self.ts,
                "step_s": step_s,
                "busy_s": self.busy_s[rank],
                "wait_s": self.wait_s[rank],
                "memory": self.memory[rank],
                "node": None if node is None else self.nodes[node],
                "slow": self.slow is not None and self.slow.rank == rank,
                **self.place(rank),
            }


class RankMetricsPage(Value):
    """One page of rank metrics, newest first. `next` is the `before` of the next request, null on the last page.

    The oldest samples of a long job are thinned out, so positions between `first` and `last` can be missing.
    """

    items: list[RankMetrics]
    first: int | None = Field(None, description="Position of the oldest sample.")
    last: int | None = Field(None, description="Position of the newest sample.")
    next: int | None = None

    def to_pandas(self) -> Any:
        """The samples as a `pandas.DataFrame` indexed by attempt, step and rank, with coordinates by axis. Needs the extra `pandas`."""
        rows = [row for sample in reversed(self.items) for row in sample.rows()]
        axes = dict.fromkeys(axis for sample in self.items for axis in sample.axes or {})
        return dataframes.of_ranks(rows, list(axes))
