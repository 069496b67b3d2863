import itertools
import random

import pytest

from shardyard.strategies.data_parallel.key_assignment import assign, held


def fullest(sizes: list[int], found: list[int], servers: int) -> int:
    return max(sum(size for size, server in zip(sizes, found, strict=True) if server == one) for one in range(servers))


def test_the_largest_goes_first_and_to_the_emptiest() -> None:
    assert assign([3, 10, 4, 4, 8], 2) == [1, 0, 1, 0, 1]
    assert held([3, 10, 4, 4, 8], 2) == [[10, 4], [3, 4, 8]]


def test_equal_parameters_keep_their_order() -> None:
    assert assign([5, 5, 5, 5], 2) == [0, 1, 0, 1]


def test_more_servers_than_parameters_leave_some_empty() -> None:
    assert held([2, 1], 3) == [[2], [1], []]
    assert held([], 2) == [[], []]


@pytest.mark.parametrize("servers", [2, 3])
def test_the_fullest_is_within_grahams_bound_of_the_best(servers: int) -> None:
    rng = random.Random(servers)
    for _ in range(20):
        sizes = [rng.randint(1, 50) for _ in range(6)]
        every = itertools.product(range(servers), repeat=len(sizes))
        best = min(fullest(sizes, list(one), servers) for one in every)
        assert fullest(sizes, assign(sizes, servers), servers) <= (4 / 3 - 1 / (3 * servers)) * best
