"""Pieces of host memory have the sizes that are asked for, and there are no more of them than were in use at once."""

import pytest
import torch
from harness.counted_pinning import CountedPinning

from shardyard.strategies import pinned_memory
from shardyard.strategies.activation_memory.host_pool import HostPool, Piece

CPU = torch.device("cpu")


def test_a_piece_for_a_gpu_is_pinned_in_its_own_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """155 MB, of which torch would pin 268 MB."""
    pinning = CountedPinning()
    monkeypatch.setattr(pinned_memory, "CudaPinning", lambda _: pinning)
    piece = Piece(18_944 * 4096 * 2, torch.device("cuda", 0))
    assert list(pinning.registered.values()) == [piece.content.numel()] == [18_944 * 4096 * 2]


def test_the_smallest_piece_that_fits_is_used_again() -> None:
    pool = HostPool()
    large, small = pool.take(200, CPU), pool.take(100, CPU)
    for piece in (large, small):
        pool.give(piece)
    assert pool.take(90, CPU) is small
    assert pool.take(90, CPU) is large
    assert pool.take(90, CPU).content.numel() == 90


def test_sizes_that_change_do_not_add_up() -> None:
    pool = HostPool()
    for size in range(1, 50):
        pieces = [pool.take(size, CPU), pool.take(2 * size, CPU)]
        for piece in pieces:
            pool.give(piece)
    sizes = [piece.content.numel() for piece in pool._free]
    assert len(sizes) == 2 and max(sizes) == 98
