"""PipeDream's partition of blocks over stages (Narayanan et al., SOSP 2019, 1806.03377, section 3.1). Deterministic. Imports no torch.

    A(s, j) = min over i of max(A(s − 1, i), M(i), T(s, i, j))

A(s, j) is the time of the slowest of the first s stages, and of the messages between them, if these stages have blocks 0 to j − 1.
T(s, i, j) is the work of stage s with blocks i to j − 1, and M(i) the time of the messages over the boundary before block i. All stages
have the same number of replicas here. The paper also chooses those, which adds a dimension to A: `replica_partition.py`.

Several partitions may have the same slowest part, most of all where messages are the slowest. A second programme takes the most even one of
them: the least sum of the squares of the stages' work. Between equal sums the first stages have the fewest blocks.

Time: s·n² steps for s stages and n blocks.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

#: The value of a stage, counted from 0, with the blocks from the second number on and before the third one.
_Value = Callable[[int, int, int], float]
_Join = Callable[[float, float], float]


@dataclass(frozen=True)
class _Pipeline:
    """`before[j]`: the work of blocks 0 to j − 1; `messages[j]`: the time of the messages before block j."""

    stages: int
    before: Sequence[int]
    messages: Sequence[int]
    embed: int
    head: int

    def work(self, stage: int, first: int, end: int) -> int:
        """The work of `stage` with blocks `first` to `end` − 1."""
        ends = self.embed * (stage == 0) + self.head * (stage == self.stages - 1)
        return self.before[end] - self.before[first] + ends

    def slowest(self, stage: int, first: int, end: int) -> int:
        """The time of `stage` or of the messages before it, whichever is longer."""
        return max(self.work(stage, first, end), self.messages[first] if stage else 0)


def partition(
    stages: int, blocks: Sequence[int], messages: Sequence[int] = (), *, embed: int = 0, head: int = 0
) -> list[int]:
    """The number of blocks of each stage, one stage per rank. `blocks`, `embed` and `head` are work in any unit of time.

    `messages`: the time, in the same unit, of the messages over the boundary before each block and after the last one; default: none.
    Every inner stage has at least one block. The first or the last may have none beside the embedding or the head. Raises `ValueError` if
    there are fewer blocks than inner stages.
    """
    free = [0] * (len(blocks) + 1)
    pipeline = _Pipeline(stages, list(accumulate(blocks, initial=0)), messages or free, embed, head)
    bound, _ = _least(pipeline, pipeline.slowest, max)

    def squared(stage: int, first: int, end: int) -> float:
        return math.inf if pipeline.slowest(stage, first, end) > bound else pipeline.work(stage, first, end) ** 2

    _, counts = _least(pipeline, squared, lambda sofar, square: sofar + square)
    return list(counts)


def _least(pipeline: _Pipeline, value: _Value, join: _Join) -> tuple[float, tuple[int, ...]]:
    """The partition whose joined values are the least, and that value."""
    blocks = len(pipeline.before) - 1
    best: dict[int, tuple[float, tuple[int, ...]]] = {0: (0, ())}
    for stage in range(pipeline.stages):
        fewest = 1 if 0 < stage < pipeline.stages - 1 else 0
        following = {}
        for end in range(blocks + 1):
            options = [
                (join(sofar, value(stage, first, end)), (*counts, end - first))
                for first, (sofar, counts) in best.items()
                if end - first >= fewest
            ]
            if options:
                following[end] = min(options)
        best = following
    if blocks not in best:
        raise ValueError(f"{blocks} blocks do not fill {pipeline.stages} stages")
    return best[blocks]
