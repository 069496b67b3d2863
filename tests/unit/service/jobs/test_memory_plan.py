"""Which devices a plan is made for, by the known nodes."""

from typing import Any, cast

import pytest

from shardyard.service.jobs.memory_plan import Nodes, device_facts
from shardyard.service.policies.queue import Inventory, machine
from shardyard.service.spec import JobSpec
from shardyard.workers.device_choices import DeviceFacts


def cluster(*models: str, gpus: float = 8.0) -> Nodes:
    rows: list[Any] = [{"gpu": gpus, "gpu_model": model} for model in models]
    return Nodes(cast(Any, rows), Inventory([machine(64.0, 0.0, gpus, 0.0, 1) for _ in models]))


def job(device: str = "auto") -> JobSpec:
    train = {"steps": 1, "global_batch": 2}
    return JobSpec.model_validate({"name": "a", "train": train, "resources": {"device": device}})


@pytest.mark.parametrize(
    ("models", "capability"),
    [
        (["T4"], (7, 5)),
        (["T4", "V100"], (7, 5)),
        (["T4", "H100"], (9, 0)),
        (["T4", "RTX-9090"], None),
        (["A100"], (8, 0)),
    ],
    ids=str,
)
def test_gpus_are_as_new_as_the_newest_known_model(models: list[str], capability: tuple[int, int] | None) -> None:
    assert device_facts(job(), [cluster(*models)]) == DeviceFacts("cuda", capability)


def test_cpus_have_no_capability() -> None:
    assert device_facts(job("cpu"), [cluster("T4")]) == DeviceFacts("cpu")
    assert device_facts(job(), [cluster("", gpus=0.0)]) == DeviceFacts("cpu")
