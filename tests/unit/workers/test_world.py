"""Which device the world's process group is bound to."""

from typing import Any

import pytest
import torch
import torch.distributed as dist

from shardyard.workers.messages.rank_event import facts_of
from shardyard.workers.world import DeviceFailed, device_of, form_world


def test_a_gpus_world_is_bound_to_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only then are groups split from it. There is no NCCL here, so the call is looked at."""
    calls: list[Any] = []
    monkeypatch.setattr(dist, "init_process_group", lambda *given, **more: calls.append((given, more)))
    for device in (torch.device("cuda", 3), torch.device("cpu")):
        form_world(device, rank=1, world_size=2)
    place = {"rank": 1, "world_size": 2}
    assert calls == [
        (("cpu:gloo,cuda:nccl",), {"device_id": torch.device("cuda", 3), **place}),
        (("gloo",), {"device_id": None, **place}),
    ]


def test_a_gpu_that_cannot_be_used_is_no_fault_of_the_training_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no GPU here, so torch's error stands in for the driver's."""

    def gone(_: int) -> None:
        raise RuntimeError("No CUDA GPUs are available")

    monkeypatch.setattr(torch.cuda, "set_device", gone)
    with pytest.raises(DeviceFailed, match="No CUDA GPUs are available") as raised:
        device_of("cuda", 0)
    assert facts_of(raised.value).cause == "device_failed"
