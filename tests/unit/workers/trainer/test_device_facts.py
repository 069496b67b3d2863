"""All ranks of a gang decide alike, by its oldest GPU and by the node that lacks a compiler."""

from typing import Any

import pytest
import torch
import torch.distributed as dist

from shardyard.strategies.layout import ModelFacts
from shardyard.workers.device_choices import DeviceFacts
from shardyard.workers.spec import TrainSpec
from shardyard.workers.trainer import device_facts
from shardyard.workers.trainer.device_facts import decided, weakest

DENSE = ModelFacts(4, 4, 4, 352)
NEW, OLD = DeviceFacts("cuda", (9, 0)), DeviceFacts("cuda", (7, 5))


def spec(**train: Any) -> TrainSpec:
    return TrainSpec.model_validate({"steps": 1000, "global_batch": 8, **train})


def test_a_gang_is_as_old_as_its_oldest_gpu_and_lacks_what_one_node_lacks() -> None:
    assert weakest([NEW, OLD, NEW]) == OLD
    assert weakest([NEW, DeviceFacts("cuda", (8, 0), "no Triton")]) == DeviceFacts("cuda", (8, 0), "no Triton")
    assert weakest([NEW]) == NEW


def test_cpu_ranks_decide_without_a_message() -> None:
    """No process group is needed: the ranks of a CPU gang exchange nothing for it."""
    found = decided(spec(), DENSE, torch.device("cpu"))
    assert (found.train.precision.compute, found.train.compile) == ("fp32", False)


def test_a_spec_that_names_all_asks_no_rank() -> None:
    named = spec(precision="bf16", compile=False)
    assert decided(named, DENSE, torch.device("cuda")).train == named


@pytest.mark.parametrize(
    ("peer", "dtype", "compiled"),
    [(NEW, "bf16", True), (OLD, "fp32", False), (DeviceFacts("cuda", (9, 0), "no compiler."), "bf16", False)],
    ids=["alike", "older", "no compiler"],
)
def test_a_gpu_rank_decides_as_its_peer_does(
    peer: DeviceFacts, dtype: str, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A seam: this machine has no GPU. The rank itself has a new one and a compiler."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr(device_facts, "missing_for_gpus", lambda: None)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)

    def gathered(everyone: list[DeviceFacts], mine: DeviceFacts) -> None:
        everyone[:] = [mine, peer]

    monkeypatch.setattr(dist, "all_gather_object", gathered)
    found = decided(spec(), DENSE, torch.device("cuda", 0))
    assert (found.train.precision.compute, found.train.compile) == (dtype, compiled)
