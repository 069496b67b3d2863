from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from shardyard.workers.data.shuffle import permute, shuffled


@settings(deadline=None)
@given(st.integers(1, 5000), st.text(max_size=8))
def test_is_a_permutation(size: int, key: str) -> None:
    assert np.array_equal(np.sort(permute(np.arange(size), size, key)), np.arange(size))


@settings(deadline=None)
@given(st.integers(1, 10**15), st.lists(st.integers(0, 10**15), max_size=20), st.text(max_size=8))
def test_each_place_is_found_alone_and_within_range(size: int, places: list[int], key: str) -> None:
    positions = np.array([place % size for place in places], dtype=np.int64)
    together = permute(positions, size, key)
    assert [int(permute(positions[i : i + 1], size, key)[0]) for i in range(len(positions))] == together.tolist()
    assert ((together >= 0) & (together < size)).all()


def test_keys_give_orders_that_agree_no_more_than_chance_does() -> None:
    """Two random permutations agree in one place on average, whatever their size; so do neighbours stay neighbours."""
    size, orders = 1000, [permute(np.arange(1000), 1000, f"7/{epoch}") for epoch in range(200)]
    agreements = [np.sum(a == b) for a, b in pairwise(orders)]
    assert 0.7 < np.mean(agreements) < 1.3
    neighbours = [np.sum(np.diff(order) == 1) for order in orders]
    assert 0.7 < np.mean(neighbours) < 1.3
    firsts = np.array([order[0] for order in orders])
    assert abs(firsts.mean() - size / 2) < 80


def test_the_order_of_a_release_stays() -> None:
    """A run that is resumed after an upgrade must read on where it was: these numbers never change."""
    assert permute(np.arange(10), 10, "train/0/0").tolist() == PINNED


PINNED = [4, 9, 0, 6, 2, 5, 1, 7, 8, 3]


def test_endless_samples_have_each_number_once_per_epoch_in_another_order() -> None:
    numbers = shuffled(np.arange(30), 10, "corpus/7")
    epochs = numbers.reshape(3, 10)
    assert np.array_equal(np.sort(epochs, axis=1), np.tile(np.arange(10), (3, 1)))
    assert len({tuple(epoch) for epoch in epochs.tolist()}) == 3
    assert np.array_equal(shuffled(np.array([25, 3]), 10, "corpus/7"), numbers[[25, 3]])
    assert np.array_equal(epochs[1], permute(np.arange(10), 10, "corpus/7/1"))
