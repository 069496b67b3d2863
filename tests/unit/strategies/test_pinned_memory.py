"""Memory is pinned in its own size, for as long as it is used."""

import gc

import pytest
import torch
from harness.counted_pinning import CountedPinning

from shardyard.strategies.pinned_memory import CudaPinning, PinnedMemory


def test_memory_is_registered_in_its_own_size_until_it_goes() -> None:
    pinning = CountedPinning()
    memory = PinnedMemory(3 << 20 | 5, pinning)
    assert memory.error == 0 and list(pinning.registered.values()) == [memory.content.numel()] == [3 << 20 | 5]
    assert memory.content.data_ptr() % 4096 == 0
    place = memory.content[7:9]
    del memory
    gc.collect()
    assert pinning.registered == {} and pinning.unregistrations == 1
    assert place.fill_(3).tolist() == [3, 3]


def test_memory_that_cannot_be_pinned_is_used() -> None:
    pinning = CountedPinning(code=2)
    memory = PinnedMemory(10, pinning)
    assert memory.error == 2 and memory.content.fill_(1).sum() == 10
    del memory
    gc.collect()
    assert pinning.unregistrations == 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_pins_memory_of_any_size() -> None:
    memory = PinnedMemory(3 << 20 | 5, CudaPinning(torch.device("cuda", 0)))
    assert memory.error == 0 and memory.content.is_pinned()
    memory.content[:4].copy_(torch.ones(4, device="cuda"), non_blocking=True)
    torch.cuda.synchronize()
    assert memory.content[:4].tolist() == [1, 1, 1, 1]
