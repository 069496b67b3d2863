"""A thread of a CPU rank asks CUDA for nothing; that of a GPU rank uses the rank's device."""

import pytest
import torch

from shardyard.strategies.thread_device import use_device


def test_a_thread_uses_the_ranks_gpu_and_no_gpu_on_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "set_device", used.append)
    for device in (torch.device("cpu"), torch.device("cuda", 2)):
        use_device(device)
    assert used == [torch.device("cuda", 2)]
