"""What selective recompute keeps of a mixture's experts: products expert by expert, but none of all experts together."""

from typing import Any

import pytest

from shardyard.strategies.cost.block_memory import block_bytes
from shardyard.strategies.cost.estimate import Setting
from shardyard.workers.cost_inputs import planned_setting
from shardyard.workers.device_choices import DeviceKind
from shardyard.workers.spec import TrainSpec

MODEL = {"family": "moe", "preset": "nano"}


def setting(device: DeviceKind, precision: str, **model: Any) -> Setting:
    train = TrainSpec.model_validate(
        {
            "model": {**MODEL, **model},
            "data": {"seq_len": 32},
            "precision": precision,
            "recompute": "selective",
            "steps": 2,
            "global_batch": 8,
            "layout": {"data": 2, "expert": 2},
        }
    )
    architecture = train.architecture(256)
    assert architecture is not None
    return planned_setting(train, architecture, device)


@pytest.mark.parametrize(
    ("device", "precision", "capacity", "kept"),
    [
        ("cuda", "bf16", None, False),
        ("cuda", "fp16", None, True),
        ("cuda", "fp32", None, True),
        ("cuda", "fp32", 1.25, False),
        ("cpu", "bf16", None, True),
    ],
)
def test_products_of_single_experts_are_kept(
    device: DeviceKind, precision: str, capacity: float | None, kept: bool
) -> None:
    """GPUs multiply in groups in bf16 alone, and in batches where buffers have a fixed size."""
    narrow, wide = (setting(device, precision, capacity_factor=capacity, hidden=hidden) for hidden in (176, 352))
    more = block_bytes(wide, "selective") - block_bytes(narrow, "selective")
    assert more == kept * 2 * 176 * narrow.decoder.top_k * narrow.compute
