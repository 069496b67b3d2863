"""What the queue looks for follows from the spec: fp8 has no place on a CPU."""

from typing import Any

import pytest

from shardyard.service.spec import JobSpec


@pytest.mark.parametrize(
    ("precision", "asked", "device"),
    [("fp8", "auto", "cuda"), ("bf16", "auto", "auto"), ("fp8", "cuda", "cuda"), ("bf16", "cpu", "cpu")],
)
def test_fp8_waits_for_gpus(precision: str, asked: str, device: str) -> None:
    train: dict[str, Any] = {"steps": 1, "global_batch": 2, "precision": precision}
    spec = JobSpec.model_validate({"name": "a", "train": train, "resources": {"device": asked}})
    assert spec.device == device
