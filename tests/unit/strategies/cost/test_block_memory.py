"""What selective recompute keeps of a mixture's experts: products expert by expert, but none of all experts together."""

from dataclasses import replace
from typing import Any, Literal

import pytest

from shardyard.strategies.cost.block_memory import block_bytes
from shardyard.strategies.cost.estimate import Setting
from shardyard.workers.cost_inputs import planned_setting
from shardyard.workers.device_choices import DeviceKind
from shardyard.workers.spec import TrainSpec

MODEL = {"family": "moe", "preset": "nano"}


def setting(device: DeviceKind, precision: str, on: tuple[int, int] | None, **model: Any) -> Setting:
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
    return planned_setting(train, architecture, device, on)


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


@pytest.mark.parametrize("mode", ["none", "selective", "full"])
def test_norms_of_heads_keep_what_they_normalise_unless_it_is_computed_again(mode: str) -> None:
    """Queries and keys, and in fp32 a number for each of their heads."""
    train = _train(model={"preset": "qwen3-nano"})
    architecture = train.architecture(256)
    assert architecture is not None
    found = planned_setting(train, architecture, "cuda")
    of = found.decoder
    assert of.head_norms
    plain = replace(found, decoder=replace(of, head_norms=False))
    head = architecture.head_size
    more = block_bytes(found, mode) - block_bytes(plain, mode)
    assert more == ((2 + 4 / head) * (of.query + of.key) if mode == "none" else 0)


@pytest.mark.parametrize(
    ("layout", "kept"),
    [
        ({}, False),
        ({"context": 4, "ulysses": 4}, False),
        ({"context": 4}, True),
        ({"context": 4, "ring_window": 2}, True),
        ({"context": 4, "context_method": "all-gather"}, True),
        ({"context": 4, "context_method": "ring-self-attention"}, False),
    ],
)
def test_selective_recompute_keeps_attention_over_ranks_also_of_packed_documents(
    layout: dict[str, Any], kept: bool
) -> None:
    """Its output and the log of each sum, as one result."""
    train = _train(layout=layout, recompute="selective")
    architecture = train.architecture(256)
    assert architecture is not None
    packed = replace(planned_setting(train, architecture, "cuda"), packed=True)
    full = replace(packed, packed=False)
    scores = layout.get("context_method") == "ring-self-attention"
    core = packed.compute * (packed.decoder.query + packed.decoder.heads)
    assert block_bytes(full, "selective") - block_bytes(packed, "selective") == (0 if kept or scores else core)


def _train(**changes: Any) -> TrainSpec:
    given = {"model": {"preset": "nano"}, "precision": "bf16", "steps": 2, "global_batch": 8, **changes}
    return TrainSpec.model_validate({"data": {"seq_len": 32}, **given})


@pytest.mark.parametrize(
    ("capability", "precision", "capacity", "kept"),
    [
        ((9, 0), "bf16", None, False),
        (None, "bf16", None, False),
        ((10, 0), "bf16", None, True),
        ((10, 0), "bf16", 1.25, False),
        ((9, 4), "bf16", None, True),
        ((7, 5), "bf16", None, True),
        ((9, 0), "fp16", None, True),
        ((9, 0), "fp32", None, True),
        ((9, 0), "fp32", 1.25, False),
        ("cpu", "bf16", None, True),
    ],
)
def test_products_of_single_experts_are_kept(
    capability: tuple[int, int] | Literal["cpu"] | None, precision: str, capacity: float | None, kept: bool
) -> None:
    """GPUs from Ampere to Hopper multiply in groups, in bf16 alone, and all in batches where buffers have a fixed size."""
    device: DeviceKind = "cpu" if capability == "cpu" else "cuda"
    on = None if capability == "cpu" else capability
    narrow, wide = (setting(device, precision, on, capacity_factor=capacity, hidden=hidden) for hidden in (176, 352))
    more = block_bytes(wide, "selective") - block_bytes(narrow, "selective")
    assert more == kept * 2 * 176 * narrow.decoder.top_k * narrow.compute
