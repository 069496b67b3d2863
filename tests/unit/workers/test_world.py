"""Which device the world's process group is bound to."""

from typing import Any

import pytest
import torch
import torch.distributed as dist

from shardyard.workers import world
from shardyard.workers.messages.rank_event import facts_of
from shardyard.workers.world import DeviceFailed, device_of, form_world, formed_by_torchrun


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

    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", gone)
    with pytest.raises(DeviceFailed, match="No CUDA GPUs are available") as raised:
        device_of("cuda", 0)
    assert facts_of(raised.value).cause == "device_failed"


def test_torch_without_cuda_cannot_use_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: False)
    with pytest.raises(DeviceFailed, match="of this node has no CUDA") as raised:
        device_of("cuda", 0)
    assert facts_of(raised.value).cause == "device_failed"


class Left(BaseException):
    """The process ended."""


@pytest.mark.parametrize("kind", ["cuda", "cpu"])
def test_a_rank_that_raises_on_a_gpu_prints_its_error_and_waits_for_no_other(
    kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """NCCL's groups would wait in `destroy_process_group`. There is no NCCL here, so the calls are looked at."""
    calls: list[str] = []

    def leave(status: int) -> None:
        calls.append(f"exit {status}")
        raise Left

    monkeypatch.setenv("RANK", "0")
    monkeypatch.setattr(world, "device_of", lambda *_: torch.device(kind))
    monkeypatch.setattr(world, "form_world", lambda *_, **__: None)
    monkeypatch.setattr(world.os, "_exit", leave)
    monkeypatch.setattr(dist, "destroy_process_group", lambda: calls.append("destroyed"))
    with formed_by_torchrun(kind):
        pass
    assert calls == ["destroyed"]
    calls.clear()
    with pytest.raises(Left if kind == "cuda" else MemoryError), formed_by_torchrun(kind):
        raise MemoryError("too much")
    assert calls[0] == ("exit 1" if kind == "cuda" else "destroyed")
    assert ("MemoryError: too much" in capsys.readouterr().err) == (kind == "cuda")
