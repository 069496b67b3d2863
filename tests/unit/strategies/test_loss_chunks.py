"""Chunks of the loss: one as long as its logits fit, else equal ones below the bound."""

import pytest

from shardyard.strategies.loss_chunks import CHUNK_BYTES, loss_chunk


def test_a_small_micro_batch_is_one_chunk() -> None:
    assert loss_chunk(16 * 32, 256, 1, None) is None


def test_llama_3_8b_with_two_sequences_is_cut_below_the_bound() -> None:
    found = loss_chunk(2 * 8192, 128_256, 1, None)
    assert found is not None
    assert CHUNK_BYTES / 2 < found * 128_256 * 4 <= CHUNK_BYTES


def test_tensor_ranks_share_the_vocabulary() -> None:
    alone, shared = loss_chunk(16_384, 128_256, 1, None), loss_chunk(16_384, 128_256, 8, None)
    assert alone is not None and shared is not None
    assert shared == pytest.approx(8 * alone, rel=0.05)


@pytest.mark.parametrize(("tokens", "most", "expected"), [(10, 4, 4), (9, 4, 3), (8, 8, None), (8, 9, None), (3, 1, 1)])
def test_chunks_are_about_equal_and_at_most_as_given(tokens: int, most: int, expected: int | None) -> None:
    assert loss_chunk(tokens, 7, 1, most) == expected


def test_a_huge_vocabulary_is_cut_to_single_tokens() -> None:
    assert loss_chunk(4, 1 << 27, 1, None) == 1
