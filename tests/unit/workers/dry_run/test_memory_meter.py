"""Host tensors need no device: what was freed does not count, and sizes are whole blocks of the allocator."""

import torch

from shardyard.workers.dry_run.memory_meter import Meter


def test_the_most_that_was_held_at_once_counts() -> None:
    with Meter() as meter:
        first = torch.zeros(1000)  # 4,000 bytes: 8 blocks of 512
        del first
        second, third = torch.zeros(256), torch.zeros(1)
    assert meter.host_bytes == 4096
    assert second.numel() + third.numel() == 257 and meter.device_bytes == 0


def test_a_view_holds_nothing_of_its_own() -> None:
    with Meter() as meter:
        whole = torch.zeros(1024)
        part = whole[:512].view(2, 256)
    assert part.numel() == 512 and meter.host_bytes == 4096
