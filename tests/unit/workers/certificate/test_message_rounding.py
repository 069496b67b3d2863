"""The certificate's textbook of rounding equals another, number by number, and its shards and pieces are those of the layout."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from harness.quantised import reduced, rounded

from shardyard.workers.certificate.message_rounding import Array, by_shard, by_tensor_rank, read_back, summed


def numbers(*shape: int, seed: int = 0) -> Array:
    found = np.random.default_rng(seed).standard_normal(shape)
    found.reshape(-1)[:3] = 0.0
    return found


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("size", [1, 7, 32, 33, 200])
def test_blocks_are_read_back_as_another_textbook_reads_them(bits: int, size: int) -> None:
    row = numbers(size)
    found = read_back(row, 32, bits)
    np.testing.assert_array_equal(found, rounded(row, [size], 32, bits))
    steps = np.abs(row).max() / (2 ** (bits - 1) - 1)
    assert np.abs(found - row).max() <= steps / 2 * (1 + 1e-12)


def test_a_block_of_zeros_stays_zero_and_halves_go_to_even() -> None:
    assert not read_back(np.zeros(40), 32, 8).any()
    np.testing.assert_array_equal(read_back(np.array([7.0, 0.5, 1.5, -2.5]), 32, 4), [7.0, 0.0, 2.0, -2.0])


@pytest.mark.parametrize("node", [None, 2])
def test_sums_are_those_of_another_textbook(node: int | None) -> None:
    rows = [numbers(70, seed=rank) for rank in range(4)]
    np.testing.assert_array_equal(summed(rows, 32, 4, node), reduced(rows, [70], 32, 4, node))


def kept(rows: Sequence[Array]) -> Any:
    return rows[-1]


@pytest.mark.parametrize("shape", [(1,), (5,), (7, 3), (8, 2, 2)])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_shards_are_put_together_again(shape: tuple[int, ...], ranks: int) -> None:
    values = [numbers(*shape, seed=sender) for sender in (1, 2)]
    np.testing.assert_array_equal(by_shard(values, ranks, kept), values[1])


@pytest.mark.parametrize("dim", [None, 0, 1])
@pytest.mark.parametrize("pieces", [1, 2, 4])
def test_pieces_are_put_together_again(dim: int | None, pieces: int) -> None:
    values = [numbers(5, 6, seed=sender) for sender in (1, 2)]
    np.testing.assert_array_equal(by_tensor_rank(values, dim, pieces, kept), values[1])


def test_a_block_does_not_cross_a_shard_or_a_piece() -> None:
    values = np.array([[1.0, 100.0], [2.0, 200.0], [3.0, 300.0]])

    def change(rows: Sequence[Array]) -> Array:
        return np.full_like(rows[0], np.abs(rows[0]).max())

    np.testing.assert_array_equal(by_shard([values], 2, change)[:, 0], [200, 200, 300])
    found = by_tensor_rank([values], 1, 2, lambda rows: by_shard(rows, 2, change))
    np.testing.assert_array_equal(found, [[2, 200], [2, 200], [3, 300]])
