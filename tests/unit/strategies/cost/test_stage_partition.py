"""The programme finds what a search of all partitions finds: the least slowest part, and of those the most even one."""

from collections.abc import Iterator
from itertools import combinations_with_replacement, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardyard.strategies.cost.stage_partition import partition

TIMES = st.integers(0, 30)


def _all(blocks: int, stages: int) -> Iterator[list[int]]:
    """The blocks of each stage in every partition whose inner stages have one."""
    for cuts in combinations_with_replacement(range(blocks + 1), stages - 1):
        counts = [end - first for first, end in pairwise([0, *cuts, blocks])]
        if all(counts[1:-1]):
            yield counts


def _score(counts: list[int], blocks: list[int], messages: list[int], embed: int, head: int) -> tuple[int, int]:
    """The slowest part, and the sum of the squares of the stages' work."""
    edges = [sum(counts[:stage]) for stage in range(len(counts) + 1)]
    work = [sum(blocks[first:end]) for first, end in pairwise(edges)]
    work[0] += embed
    work[-1] += head
    return max(*work, *(messages[edge] for edge in edges[1:-1]), 0), sum(one**2 for one in work)


@settings(deadline=None, max_examples=150)
@given(
    data=st.data(), stages=st.integers(1, 5), blocks=st.lists(TIMES, min_size=3, max_size=8), embed=TIMES, head=TIMES
)
def test_equals_a_search_of_all_partitions(
    data: st.DataObject, stages: int, blocks: list[int], embed: int, head: int
) -> None:
    messages = data.draw(st.lists(TIMES, min_size=len(blocks) + 1, max_size=len(blocks) + 1))
    given = blocks, messages, embed, head
    scores = {tuple(counts): _score(counts, *given) for counts in _all(len(blocks), stages)}
    found = partition(stages, blocks, messages, embed=embed, head=head)
    best = min(scores.values())
    assert tuple(found) == min(counts for counts, score in scores.items() if score == best)


def test_a_costly_block_is_alone() -> None:
    assert partition(2, [9, 1, 1, 1]) == [1, 3]
    assert partition(3, [1, 1, 1, 9, 1, 1]) == [3, 1, 2]


def test_an_end_may_have_no_block() -> None:
    assert partition(2, [1, 1, 1], embed=9) == [0, 3]
    assert partition(2, [1, 1, 1], head=9) == [3, 0]


def test_a_wide_boundary_is_not_cut() -> None:
    """The even cut, after two blocks, would send for 8; the message after the first takes 1."""
    assert partition(2, [2, 2, 2, 2], [1, 1, 1, 1, 1]) == [2, 2]
    assert partition(2, [2, 2, 2, 2], [1, 1, 8, 1, 1]) == [1, 3]


def test_where_messages_are_the_slowest_the_most_even_partition_is_taken() -> None:
    assert partition(2, [3, 1, 1, 1], [50] * 5) == [1, 3]


def test_more_inner_stages_than_blocks_are_refused() -> None:
    with pytest.raises(ValueError, match="1 blocks do not fill 4 stages"):
        partition(4, [3])
