from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

from shardyard.strategies.param_shard import ParamShard
from shardyard.workers.host_memory import MemoryLimit
from shardyard.workers.snapshot import shared_memory
from shardyard.workers.trainer.segment_writer import SegmentWriter
from shardyard.workers.trainer.snapshot_allocation import Allocation


@pytest.fixture
def segments(fds: list[int]) -> SegmentWriter:
    weight = ParamShard("w", (1 << 18,), (0,), torch.ones(1 << 18), frozenset())
    return SegmentWriter(fds, [weight], torch.device("cpu"))


@pytest.fixture
def alone() -> Iterator[None]:
    """A process group of this process."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_memory_is_allocated_if_it_fits(segments: SegmentWriter, alone: None) -> None:
    assert Allocation().refusal(segments) is None
    assert segments.missing == 0


def test_memory_that_does_not_fit_is_not_allocated(segments: SegmentWriter, alone: None, fds: list[int]) -> None:
    tight = MemoryLimit("pod", "memory.max of the cgroup /pod", 1 << 30, 3 << 20)
    why = Allocation(limits=lambda: (tight,)).refusal(segments)
    assert why is not None and "need 3.3 MB" in why and "3.1 MB of 1.1 GB" in why and "snapshot.every" in why
    assert "\n" not in why and sum(map(shared_memory.allocated, fds)) == 0


def test_room_that_a_checkpoint_will_take_is_not_used(segments: SegmentWriter, alone: None) -> None:
    enough = MemoryLimit("pod", "memory.max of the cgroup /pod", 1 << 30, 8 << 20)
    why = Allocation(limits=lambda: (enough,), later=lambda: 6 << 20).refusal(segments)
    assert why is not None and "need 9.6 MB" in why
    assert Allocation(limits=lambda: (enough,)).refusal(segments) is None


def test_an_error_of_the_kernel_is_a_refusal(
    segments: SegmentWriter, alone: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(fd: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shared_memory, "reserve", none_left)
    why = Allocation().refusal(segments)
    assert why is not None and why.startswith("Rank 0 got no memory for its snapshots: [Errno 28] No space left")
