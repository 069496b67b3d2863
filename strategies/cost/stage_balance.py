"""Assigns blocks to pipeline stages so that the slowest rank is as fast as possible. Deterministic. Imports no torch.

A step takes about as long as the busiest rank works, so the largest sum over a rank's stages is minimised. Embedding and head
count, and for loops and V schedules a rank's stages count together. With equal blocks the answer is optimal. With unequal ones it
is optimal for one stage per rank (`stage_partition.py`), and a local minimum for several: to move any boundary by one block does not
improve it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise

from ..layout import Layout, Schedule
from .stage_partition import partition


@dataclass(frozen=True)
class ModuleCosts:
    """Work of a model's modules, forward and backward, in one unit: FLOPs per token, or nanoseconds per micro-batch.

    The head includes the last norm. A measured profile also has `messages`: the time of the messages both ways over the boundary before
    each block and after the last one; and `gradients`: the time to send those of the embedding, of each block and of the head once. Empty:
    they are free.
    """

    embed: int
    blocks: tuple[int, ...]
    head: int
    messages: tuple[int, ...] = ()
    gradients: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if min(self.embed, self.head, *self.blocks, *self.messages, *self.gradients, 0) < 0:
            raise ValueError(f"work is never negative: {self}")
        if self.messages and len(self.messages) != len(self.blocks) + 1:
            raise ValueError(f"{len(self.blocks)} blocks have {len(self.blocks) + 1} boundaries: {self}")
        if self.gradients and len(self.gradients) != len(self.blocks) + 2:
            raise ValueError(
                f"{len(self.blocks)} blocks, embedding and head have {len(self.blocks) + 2} gradients: {self}"
            )


def stage_blocks(layout: Layout, costs: ModuleCosts) -> tuple[range, ...]:
    """The blocks of each stage, in order. Every inner stage has at least one; an end may have none beside its embedding or head.

    Where the layout says them, work does not count.
    """
    stages = layout.stages
    if stages == 1:
        return (range(len(costs.blocks)),)
    if len(costs.blocks) < stages:
        raise ValueError(f"{len(costs.blocks)} blocks do not fill {stages} stages")
    if layout.pipeline_blocks is not None:
        return _ranges(layout.pipeline_blocks)
    return _balanced(layout.pipeline, layout.schedule, layout.virtual, costs)


@lru_cache(maxsize=1024)  # a search over layouts, and each plan, asks several times for one split
def _balanced(pipeline: int, schedule: Schedule, virtual: int, costs: ModuleCosts) -> tuple[range, ...]:
    """The blocks of each stage of a layout with these values."""
    layout = Layout(pipeline=pipeline, schedule=schedule, virtual=virtual)
    if len(set(costs.blocks)) == 1 and len(set(costs.messages)) <= 1:
        return _ranges(_equal_blocks(layout, costs))
    counts = partition(layout.stages, costs.blocks, costs.messages, embed=costs.embed, head=costs.head)
    return _ranges(counts if layout.stages_per_rank == 1 else _improved(layout, costs, counts))


def busiest_rank(layout: Layout, costs: ModuleCosts) -> tuple[int, int]:
    """The work of the pipeline rank that has most, and its number of blocks. Stages are those of `stage_blocks`."""
    if layout.pipeline_blocks is not None:
        return _busiest(layout, costs)
    return _busiest_of(layout.pipeline, layout.schedule, layout.virtual, costs)


@lru_cache(maxsize=1024)
def _busiest_of(pipeline: int, schedule: Schedule, virtual: int, costs: ModuleCosts) -> tuple[int, int]:
    return _busiest(Layout(pipeline=pipeline, schedule=schedule, virtual=virtual), costs)


def _busiest(layout: Layout, costs: ModuleCosts) -> tuple[int, int]:
    blocks = stage_blocks(layout, costs)
    counts = [sum(len(blocks[stage]) for stage in layout.stages_of(rank)) for rank in range(layout.pipeline)]
    return max(zip(rank_costs(layout, costs, blocks), counts, strict=True))


def stage_costs(costs: ModuleCosts, blocks: Sequence[range]) -> list[int]:
    """The work of each stage."""
    work = [sum(costs.blocks[index] for index in part) for part in blocks]
    work[0] += costs.embed
    work[-1] += costs.head
    return work


def rank_costs(layout: Layout, costs: ModuleCosts, blocks: Sequence[range]) -> list[int]:
    """The work of each pipeline rank over all of its stages."""
    work = stage_costs(costs, blocks)
    return [sum(work[stage] for stage in layout.stages_of(rank)) for rank in range(layout.pipeline)]


def _ranges(counts: Sequence[int]) -> tuple[range, ...]:
    return tuple(range(a, b) for a, b in pairwise(accumulate(counts, initial=0)))


def _equal_blocks(layout: Layout, costs: ModuleCosts) -> list[int]:
    """Give each block to the rank with the least work, and to the last of equal ranks (its activations live shortest).

    Optimal for equal blocks.
    """
    stages, size = layout.stages, costs.blocks[0]
    counts = [0, *[1] * (stages - 2), 0]
    owner = {stage: rank for rank in range(layout.pipeline) for stage in layout.stages_of(rank)}
    work = [count * size for count in counts]
    work[0] += costs.embed
    work[-1] += costs.head
    total = [sum(work[stage] for stage in layout.stages_of(rank)) for rank in range(layout.pipeline)]
    for _ in range(len(costs.blocks) - sum(counts)):
        stage = min(range(stages), key=lambda s: (total[owner[s]], work[s], -s))
        counts[stage] += 1
        work[stage] += size
        total[owner[stage]] += size
    return counts


def _improved(layout: Layout, costs: ModuleCosts, counts: list[int]) -> list[int]:
    """Move one block over one boundary as long as that helps the ranks (slowest first), then the stages."""
    stages = layout.stages

    def score(tried: Sequence[int]) -> tuple[list[int], list[int]]:
        blocks = _ranges(tried)
        return (
            sorted(rank_costs(layout, costs, blocks), reverse=True),
            sorted(stage_costs(costs, blocks), reverse=True),
        )

    best = score(counts)
    while True:
        moves = [(s, s + 1) for s in range(stages - 1)] + [(s + 1, s) for s in range(stages - 1)]
        tried = [_moved(counts, source, to) for source, to in moves if counts[source] > (0 < source < stages - 1)]
        found = min(tried, key=score, default=counts)
        if score(found) >= best:
            return counts
        counts, best = found, score(found)


def _moved(counts: Sequence[int], source: int, to: int) -> list[int]:
    moved = list(counts)
    moved[source] -= 1
    moved[to] += 1
    return moved
