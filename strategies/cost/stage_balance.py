"""Assigns blocks to pipeline stages so that the slowest rank is as fast as possible. Deterministic. Imports no torch.

A step takes about as long as the busiest rank works, so the largest sum over a rank's stages is minimised. Embedding and head
count, and for loops and V schedules a rank's stages count together. With equal blocks the answer is optimal. With unequal ones it
is optimal for one stage per rank, and a local minimum (moving any boundary by one block does not improve it) for several.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from ..layout import Layout


@dataclass(frozen=True)
class ModuleCosts:
    """Work of a model's modules per token, in one unit (FLOPs of forward and backward); the head includes the last norm."""

    embed: int
    blocks: tuple[int, ...]
    head: int

    def __post_init__(self) -> None:
        if min(self.embed, self.head, *self.blocks, 0) < 0:
            raise ValueError(f"work is never negative: {self}")


def stage_blocks(layout: Layout, costs: ModuleCosts) -> tuple[range, ...]:
    """The blocks of each stage, in order. Every inner stage has at least one; an end may have none beside its embedding or head."""
    stages = layout.stages
    if stages == 1:
        return (range(len(costs.blocks)),)
    if len(costs.blocks) < stages:
        raise ValueError(f"{len(costs.blocks)} blocks do not fill {stages} stages")
    if len(set(costs.blocks)) == 1:
        return _ranges(_equal_blocks(layout, costs))
    counts = _one_stage_per_rank(stages, costs)
    return _ranges(counts if layout.stages_per_rank == 1 else _improved(layout, costs, counts))


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


def _one_stage_per_rank(stages: int, costs: ModuleCosts) -> list[int]:
    """The smallest bound that every stage can keep, found by bisection; stages are filled up to it from the last to the first."""
    low, high = 0, costs.embed + sum(costs.blocks) + costs.head
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _filled(stages, costs, middle) else (middle + 1, high)
    counts = _filled(stages, costs, low)
    assert counts is not None
    return counts


def _filled(stages: int, costs: ModuleCosts, bound: int) -> list[int] | None:
    """Blocks per stage with no stage's work above `bound`, or None."""
    counts = [0] * stages
    left = len(costs.blocks)
    for stage in reversed(range(stages)):
        room = bound - (costs.head if stage == stages - 1 else 0) - (costs.embed if stage == 0 else 0)
        needed_before = max(0, stage - 1)
        while left > needed_before and (
            costs.blocks[left - 1] <= room or (0 < stage < stages - 1 and not counts[stage])
        ):
            left -= 1
            room -= costs.blocks[left]
            counts[stage] += 1
        if room < 0:
            return None
    return counts if left == 0 else None


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
