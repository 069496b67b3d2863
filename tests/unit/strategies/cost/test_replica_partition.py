"""The programme of stages and replicas finds what a search of all of them finds."""

from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardyard.strategies.cost.replica_partition import Partition, Stage, partition, slowest, steps
from shardyard.strategies.cost.stage_balance import ModuleCosts

TIMES = st.integers(0, 30)


def _all(modules: int, ranks: int) -> Iterator[tuple[list[int], list[int]]]:
    """The first module of each stage and one past the last module, and the replicas of each stage, in every way."""
    for stages in range(1, min(modules, ranks) + 1):
        for cuts in combinations(range(1, modules), stages - 1):
            for splits in combinations(range(1, ranks), stages - 1):
                yield [0, *cuts, modules], [after - before for before, after in pairwise([0, *splits, ranks])]


def _slowest(costs: ModuleCosts, edges: list[int], replicas: list[int], every: int) -> Fraction:
    """Section 3.1's times, with a ring's all-reduce, written out."""
    work = [costs.embed, *costs.blocks, costs.head]
    found = []
    for (first, end), m in zip(pairwise(edges), replicas, strict=True):
        all_reduce = Fraction(2 * (m - 1), m) * sum(costs.gradients[first:end]) / every
        found.append(max(Fraction(sum(work[first:end])), all_reduce) / m)
    found += [Fraction(costs.messages[edge - 1]) for edge in edges[1:-1]]
    return max(found)


@st.composite
def _costs(draw: st.DrawFn) -> ModuleCosts:
    blocks = draw(st.lists(TIMES, min_size=1, max_size=5))
    messages = draw(st.lists(TIMES, min_size=len(blocks) + 1, max_size=len(blocks) + 1))
    gradients = draw(st.lists(st.integers(0, 90), min_size=len(blocks) + 2, max_size=len(blocks) + 2))
    return ModuleCosts(draw(TIMES), tuple(blocks), draw(TIMES), tuple(messages), tuple(gradients))


@settings(deadline=None, max_examples=120)
@given(costs=_costs(), ranks=st.integers(1, 6), every=st.integers(1, 3))
def test_equals_a_search_of_all_stages_and_replicas(costs: ModuleCosts, ranks: int, every: int) -> None:
    best = min(_slowest(costs, *one, every) for one in _all(len(costs.blocks) + 2, ranks))
    found = partition(costs, ranks, every)
    assert found.time == pytest.approx(float(best), rel=1e-12)
    assert found.time == slowest(costs, found.stages, every)
    assert sum(stage.replicas for stage in found.stages) == ranks
    assert sum(stage.blocks for stage in found.stages) == len(costs.blocks)
    assert found == partition(costs, ranks, every)


@settings(deadline=None, max_examples=60)
@given(costs=_costs(), data=st.data(), every=st.integers(1, 3))
def test_the_slowest_part_of_given_stages_is_that_of_the_definition(
    costs: ModuleCosts, data: st.DataObject, every: int
) -> None:
    edges, replicas = data.draw(st.sampled_from([*_all(len(costs.blocks) + 2, 4)]))
    sizes = [after - before for before, after in pairwise(edges)]
    sizes[0] -= 1
    sizes[-1] -= 1
    stages = [Stage(size, m) for size, m in zip(sizes, replicas, strict=True)]
    assert slowest(costs, stages, every) == pytest.approx(float(_slowest(costs, edges, replicas, every)), rel=1e-12)


#: Much work with few weights, then few work with many weights, as in VGG-16, which the paper divides so.
CONVOLUTIONS_FIRST = ModuleCosts(0, (9, 1), 0, (0, 0, 0), (0, 0, 100, 0))


def test_slow_stages_get_replicas_and_wide_ones_do_not() -> None:
    assert partition(CONVOLUTIONS_FIRST, 4) == Partition((Stage(1, 3), Stage(1, 1)), 3)
    assert slowest(CONVOLUTIONS_FIRST, [Stage(1, 2), Stage(1, 2)]) == 50


def test_rare_all_reduces_cost_little() -> None:
    """100 micro-batches between two of them: one stage on all ranks is the fastest."""
    assert partition(CONVOLUTIONS_FIRST, 4, every=100) == Partition((Stage(2, 4),), 2.5)


def test_a_wide_boundary_is_between_no_stages() -> None:
    """The embedding, which has no work, is better alone on a rank than a message of 20."""
    wide = ModuleCosts(0, (4, 4), 0, (0, 20, 0), (0, 100, 100, 0))
    assert partition(wide, 2) == Partition((Stage(0, 1), Stage(2, 1)), 8)
    assert partition(ModuleCosts(0, (4, 4), 0, (0, 1, 0), (0, 100, 100, 0)), 2).stages == (Stage(1, 1), Stage(1, 1))


def test_without_messages_and_gradients_all_ranks_share_all_work() -> None:
    assert partition(ModuleCosts(1, (2, 3), 4), 5).time == 2
    assert partition(ModuleCosts(1, (2, 3), 4), 1) == Partition((Stage(2, 1),), 10)


def test_its_steps_grow_with_the_squares_of_modules_and_ranks() -> None:
    assert steps(CONVOLUTIONS_FIRST, 4) == 64


def test_a_stage_is_written_as_blocks_times_replicas() -> None:
    assert str(Stage(3, 2)) == "3 × 2"
