"""The split tiles the blocks, and the slowest rank is as fast as any split could make it."""

from itertools import combinations_with_replacement, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardyard.strategies.cost.stage_balance import ModuleCosts, rank_costs, stage_blocks
from shardyard.strategies.layout import Layout

ALL = ["gpipe", "1f1b", "interleaved", "interleaved-zb", "zb-h1", "zb-h2", "zbv", "dualpipev"]
UNEVEN = st.lists(st.integers(1, 30), min_size=4, max_size=9)
EQUAL = st.builds(lambda size, count: [size] * count, st.integers(1, 30), st.integers(4, 9))


def _every_split(blocks: int, stages: int) -> list[tuple[range, ...]]:
    """All splits whose inner stages have a block."""
    found = []
    for cuts in combinations_with_replacement(range(blocks + 1), stages - 1):
        edges = [0, *cuts, blocks]
        parts = tuple(range(a, b) for a, b in pairwise(edges))
        if all(parts[1:-1]):
            found.append(parts)
    return found


def test_a_layout_may_say_the_blocks_of_each_stage() -> None:
    layout = Layout.model_validate({"pipeline": {"stages": 3, "blocks": [0, 5, 1]}})
    assert stage_blocks(layout, ModuleCosts(1, (7,) * 6, 1)) == (range(0), range(5), range(5, 6))


@given(schedule=st.sampled_from(ALL), pipeline=st.integers(2, 4), work=UNEVEN | EQUAL, head=st.integers(0, 90))
def test_blocks_tile(schedule: str, pipeline: int, work: list[int], head: int) -> None:
    layout = Layout.model_validate({"pipeline": pipeline, "schedule": schedule})
    costs = ModuleCosts(0, tuple(work), head)
    if layout.stages > len(work):
        with pytest.raises(ValueError, match="do not fill"):
            stage_blocks(layout, costs)
        return
    parts = stage_blocks(layout, costs)
    assert len(parts) == layout.stages
    assert [index for part in parts for index in part] == list(range(len(work)))
    assert all(parts[1:-1])
    assert parts == stage_blocks(layout, costs)


@settings(deadline=None, max_examples=60)
@given(
    schedule=st.sampled_from(ALL),
    pipeline=st.integers(2, 4),
    work=EQUAL,
    embed=st.integers(0, 20),
    head=st.integers(0, 90),
)
def test_equal_blocks_are_split_as_well_as_can_be(
    schedule: str, pipeline: int, work: list[int], embed: int, head: int
) -> None:
    _as_good_as_any(
        Layout.model_validate({"pipeline": pipeline, "schedule": schedule}), ModuleCosts(embed, tuple(work), head)
    )


@settings(deadline=None, max_examples=60)
@given(pipeline=st.integers(2, 4), work=UNEVEN, embed=st.integers(0, 20), head=st.integers(0, 90))
def test_unequal_blocks_are_split_as_well_as_can_be(pipeline: int, work: list[int], embed: int, head: int) -> None:
    _as_good_as_any(Layout(pipeline=pipeline), ModuleCosts(embed, tuple(work), head))


def _as_good_as_any(layout: Layout, costs: ModuleCosts) -> None:
    if layout.stages > len(costs.blocks):
        return
    best = min(max(rank_costs(layout, costs, parts)) for parts in _every_split(len(costs.blocks), layout.stages))
    assert max(rank_costs(layout, costs, stage_blocks(layout, costs))) == best


@settings(deadline=None, max_examples=60)
@given(schedule=st.sampled_from(["interleaved", "zbv"]), work=UNEVEN, head=st.integers(0, 90))
def test_unequal_blocks_on_several_stages_per_rank_are_no_worse_than_by_number(
    schedule: str, work: list[int], head: int
) -> None:
    layout = Layout.model_validate({"pipeline": 2, "schedule": schedule})
    costs = ModuleCosts(0, tuple(work), head)
    found = stage_blocks(layout, costs)
    slowest = max(rank_costs(layout, costs, found))
    for at in range(1, layout.stages):
        for step in (-1, 1):  # no boundary is better moved by one
            edges = [0, *(part.stop for part in found)]
            edges[at] += step
            moved = tuple(range(a, b) for a, b in pairwise(edges))
            if all(a <= b for a, b in pairwise(edges)) and all(moved[1:-1]):
                assert slowest <= max(rank_costs(layout, costs, moved))


def test_a_wide_head_takes_blocks_from_the_last_stage() -> None:
    even = ModuleCosts(0, (10,) * 8, 0)
    assert [len(part) for part in stage_blocks(Layout(pipeline=4), even)] == [2, 2, 2, 2]
    wide = ModuleCosts(0, (10,) * 8, 20)
    assert [len(part) for part in stage_blocks(Layout(pipeline=4), wide)] == [2, 2, 3, 1]
    wider = ModuleCosts(0, (10,) * 8, 40)
    assert [len(part) for part in stage_blocks(Layout(pipeline=4), wider)] == [2, 3, 3, 0]
    v = stage_blocks(Layout(pipeline=2, schedule="zbv"), wide)
    assert rank_costs(Layout(pipeline=2, schedule="zbv"), wide, v) == [50, 50]


def test_costs_have_a_message_for_every_boundary() -> None:
    with pytest.raises(ValueError, match="2 blocks have 3 boundaries"):
        ModuleCosts(0, (1, 1), 0, (1, 1))
    with pytest.raises(ValueError, match="embedding and head have 4 gradients"):
        ModuleCosts(0, (1, 1), 0, gradients=(1, 1))
    with pytest.raises(ValueError, match="never negative"):
        ModuleCosts(0, (1, 1), 0, (1, -1, 1))


def test_a_wide_boundary_is_between_other_stages() -> None:
    blocks = (2, 2, 2, 2)
    even, uneven = ModuleCosts(0, blocks, 0, (1,) * 5), ModuleCosts(0, blocks, 0, (1, 1, 8, 1, 1))
    assert [len(part) for part in stage_blocks(Layout(pipeline=2), even)] == [2, 2]
    assert [len(part) for part in stage_blocks(Layout(pipeline=2), uneven)] == [1, 3]
