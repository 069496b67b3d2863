"""What selective recompute keeps of a mixture's experts: products expert by expert, but none of all experts together."""

from dataclasses import replace
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
    ("capability", "precision", "head_dim", "repeated"),
    [
        ((7, 5), "fp16", 16, True),
        ((8, 0), "fp16", 16, False),
        (None, "bf16", 256, False),
        (None, "bf16", 264, True),
        ((9, 0), "fp32", 16, True),
    ],
)
def test_keys_are_repeated_where_the_kernel_knows_no_groups(
    capability: tuple[int, int] | None, precision: str, head_dim: int, repeated: bool
) -> None:
    model = {"preset": "nano", "heads": 4, "kv_heads": 2, "dim": 4 * head_dim}
    train = TrainSpec.model_validate({"model": model, "precision": precision, "steps": 2, "global_batch": 8})
    architecture = train.architecture(256)
    assert architecture is not None
    found = planned_setting(train, architecture, "cuda", capability)
    shared = replace(found, packed=True)  # packed documents: key/value heads as they are
    turns = 2 * 4 * head_dim  # sine and cosine of packed documents
    more = block_bytes(found, "none") - block_bytes(shared, "none") + turns
    assert more == repeated * found.compute * 2 * (found.decoder.query - found.decoder.key)


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
