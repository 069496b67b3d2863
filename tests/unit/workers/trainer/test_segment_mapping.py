import os
from collections.abc import Iterator

import pytest
import torch
from harness.counted_pinning import CountedPinning, mappings_of

from shardyard.strategies.pinned_memory import CudaPinning
from shardyard.workers.snapshot import shared_memory
from shardyard.workers.trainer.segment_mapping import SegmentMapping

SIZE = 3 * shared_memory.START


@pytest.fixture
def fd(fds: list[int]) -> Iterator[int]:
    shared_memory.reserve(fds[0], SIZE)
    yield fds[0]


def test_a_segment_is_registered_while_it_is_mapped(fd: int) -> None:
    pinning = CountedPinning()
    mapping = SegmentMapping(fd, SIZE, pinning)
    assert mapping.error == 0 and list(pinning.registered.values()) == [SIZE]
    place = mapping.tensor(shared_memory.START, torch.empty(2, 3))
    place.copy_(torch.arange(6.0).view(2, 3))
    assert os.pread(fd, 24, shared_memory.START) == torch.arange(6.0).numpy().tobytes()
    del place
    assert mapping.close() and pinning.registered == {} and mappings_of(fd) == []


def test_a_segment_that_cannot_be_registered_is_used_and_unmapped(fd: int) -> None:
    pinning = CountedPinning(code=2)
    mapping = SegmentMapping(fd, SIZE, pinning)
    assert mapping.error == 2 and len(mappings_of(fd)) == 1
    assert mapping.close() and pinning.unregistrations == 0 and mappings_of(fd) == []


def test_a_segment_that_cannot_be_unregistered_stays_mapped(fd: int) -> None:
    pinning = CountedPinning(unregister_code=4)
    mapping = SegmentMapping(fd, SIZE, pinning)
    assert not mapping.close() and len(mappings_of(fd)) == 1
    pinning.unregister_code = 0
    assert mapping.close() and mappings_of(fd) == []


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_pins_and_reports_what_it_refuses(fd: int) -> None:
    device = torch.device("cuda", 0)
    pinning = CudaPinning(device)
    mapping = SegmentMapping(fd, SIZE, pinning)
    assert mapping.error == 0 and mapping.tensor(0, torch.empty(4)).is_pinned()
    address = torch.frombuffer(mapping.memory, dtype=torch.uint8).data_ptr()
    assert pinning.register(address, SIZE) != 0, "it is registered already"
    assert torch.ones(3, device=device).sum().item() == 3, "the error is not reported by the next kernel"
    assert mapping.close()
