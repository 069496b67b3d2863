"""PipeDream's partition of blocks over stages, and of ranks over their replicas (Narayanan et al., 1806.03377, section 3.1). No torch.

    A(j, m) = min( T(0, j, m), min over i < j and m' < m of max(A(i, m − m'), M(i), T(i, j, m')) )
    T(i, j, m) = max( Σ work, Σ 2(m − 1)/m · g / k ) / m

The modules are the embedding, the blocks and the head. A(j, m) is the time per micro-batch of the slowest stage or message, if modules 0
to j − 1 have m ranks in all. T(i, j, m) is that of a stage with modules i to j − 1 and m replicas, which take micro-batches in turn. M(i)
is the time of the messages over the boundary before module i. g is the time to send a module's gradients once: a ring all-reduce of m
replicas sends 2(m − 1)/m of it, beside the work, once in k micro-batches of a replica. In the paper k is 1.

Our engine runs equal replicas (`stage_partition.py`). This programme finds what unequal ones would gain.

Time: O(n²N²) for n modules and N ranks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from .stage_balance import ModuleCosts


@dataclass(frozen=True)
class Stage:
    """Number of its blocks, beside the embedding in the first stage and the head in the last one, and of its replicas."""

    blocks: int
    replicas: int

    def __str__(self) -> str:
        return f"{self.blocks} × {self.replicas}"


@dataclass(frozen=True)
class Partition:
    """`time`: that of the slowest stage or message per micro-batch, in the unit of the costs."""

    stages: tuple[Stage, ...]
    time: float


@dataclass(frozen=True)
class _Modules:
    """`work[j]`, `gradients[j]`: sums over modules 0 to j − 1; `messages[j]`: before module j."""

    work: Sequence[int]
    gradients: Sequence[int]
    messages: Sequence[int]
    every: int

    def time(self, first: int, end: int, replicas: int) -> float:
        """T(first, end, replicas)."""
        sent = 2 * (replicas - 1) / replicas * (self.gradients[end] - self.gradients[first])
        return max(self.work[end] - self.work[first], sent / self.every) / replicas


#: The time of the slowest part, the number of stages, and of the last stage the first module and the replicas.
_Option = tuple[float, int, int, int]


def steps(costs: ModuleCosts, ranks: int) -> int:
    """About how many steps `partition` takes."""
    return ((len(costs.blocks) + 2) * ranks) ** 2 // 4


def partition(costs: ModuleCosts, ranks: int, every: int = 1) -> Partition:
    """The partition of all modules and exactly `ranks` ranks whose slowest part is the fastest. Deterministic.

    `every`: micro-batches of a replica between two all-reduces of its gradients.
    """
    modules, end = _modules(costs, every), len(costs.blocks) + 2
    best: dict[tuple[int, int], _Option] = {}
    for last in range(1, end + 1):
        for held in range(1, ranks + 1):
            alone = (modules.time(0, last, held), 1, 0, held)
            best[last, held] = min([alone, *_with_a_stage_before(modules, best, last, held)])
    time = best[end, ranks][0]
    cuts: list[tuple[int, int]] = []  # first module and replicas, the last stage first
    at, left = end, ranks
    while at:
        _, _, first, replicas = best[at, left]
        cuts.append((first, replicas))
        at, left = first, left - replicas
    return Partition(_stages(cuts[::-1], end), time)


def slowest(costs: ModuleCosts, stages: Sequence[Stage], every: int = 1) -> float:
    """The time of the slowest part of these `stages`, which have all blocks, as `partition` counts it."""
    modules = _modules(costs, every)
    counts = [stage.blocks for stage in stages]
    counts[0] += 1
    counts[-1] += 1
    edges = [*accumulate(counts, initial=0)]
    times = [modules.time(*edge, stage.replicas) for edge, stage in zip(pairwise(edges), stages, strict=True)]
    return max(*times, *(modules.messages[edge] for edge in edges[1:-1]), 0)


def _modules(costs: ModuleCosts, every: int) -> _Modules:
    work = (costs.embed, *costs.blocks, costs.head)
    gradients = costs.gradients or (0,) * len(work)
    messages = (0, *(costs.messages or (0,) * (len(costs.blocks) + 1)))
    return _Modules([*accumulate(work, initial=0)], [*accumulate(gradients, initial=0)], messages, every)


def _with_a_stage_before(
    modules: _Modules, best: dict[tuple[int, int], _Option], end: int, ranks: int
) -> list[_Option]:
    """The options of modules 0 to `end` − 1 on `ranks` ranks with two stages or more."""
    found = []
    for first in range(1, end):
        message = modules.messages[first]
        for own in range(1, ranks):
            before, stages, *_ = best[first, ranks - own]
            found.append((max(before, message, modules.time(first, end, own)), stages + 1, first, own))
    return found


def _stages(cuts: Sequence[tuple[int, int]], end: int) -> tuple[Stage, ...]:
    """The stages that begin at these modules with these replicas; module 0 and the last one are no blocks."""
    edges = [*(first for first, _ in cuts), end]
    sizes = [after - first - (first == 0) - (after == end) for first, after in pairwise(edges)]
    return tuple(Stage(size, replicas) for size, (_, replicas) in zip(sizes, cuts, strict=True))
