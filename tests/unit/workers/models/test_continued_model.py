"""Tensors of equal shapes can belong to another model, which a run must not become in silence. Other shapes are refused in time."""

from typing import Any

import pytest
import torch

from shardyard.strategies.expert_balance import Biased
from shardyard.strategies.layout import Refusal
from shardyard.workers.models.continued_model import other_numbers, refuse_other_model
from shardyard.workers.models.presets import PRESETS, Architecture
from shardyard.workers.models.registry import make

HERE = Architecture.model_validate(PRESETS["llama"]["nano"])


@pytest.mark.parametrize("name", ["heads", "kv_heads"])
def test_other_heads_of_equal_shapes_are_refused(name: str) -> None:
    other = HERE.model_copy(update={"heads": 2, "kv_heads": 1, "head_dim": 64} if name == "heads" else {"kv_heads": 4})
    with pytest.raises(Refusal) as refused:
        refuse_other_model(other.model_dump(), HERE)
    assert refused.value.field == f"model.{name}" and str(getattr(other, name)) in refused.value.remedy


def llama(preset: str = "nano", **changes: Any) -> Architecture:
    return Architecture.model_validate({**PRESETS["llama"][preset], **changes})


def moe(**changes: Any) -> Architecture:
    return Architecture.model_validate({**PRESETS["moe"]["nano"], **changes})


@pytest.mark.parametrize(
    ("saved", "here", "field", "remedy"),
    [
        (HERE, llama(layers=5), "layers", "Set model.layers to 4,"),
        (HERE, llama(dim=256), "dim", "Set model.dim to 128,"),
        (HERE, llama(hidden=351), "hidden", "Set model.hidden to 352,"),
        (HERE, llama(vocab=257), "vocab", "Set model.vocab to 256,"),
        (
            HERE,
            llama("micro"),
            "heads",
            "heads to 4, model.kv_heads to 2, model.dim to 128, model.hidden to 352, model.layers to 4,",
        ),
        (HERE, moe(), "family", "Set model.family to llama,"),
        (moe(), HERE, "family", "Set model.family to moe,"),
        (moe(), moe(experts=8), "experts", "Set model.experts to 4,"),
        (moe(), moe(shared_experts=1), "shared_experts", "Set model.shared_experts to 0,"),
        (moe(shared_experts=2), moe(shared_experts=1), "shared_experts", "Set model.shared_experts to 2,"),
        (moe(), moe(balance="bias"), "balance", "Set model.balance to loss,"),
        (llama(tied=True), HERE, "tied", "Set model.tied to true,"),
        (HERE, llama(qk_norm=True), "preset", "Use the preset of its model,"),
        (HERE, llama(qkv_bias=True), "preset", "Use the preset of its model,"),
        (HERE, llama(head_dim=64), "preset", "Use the preset of its model,"),
        (llama("qwen3-nano"), HERE, "tied", "Use the preset of its model,"),
    ],
)
def test_weights_that_the_checkpoint_lacks_are_refused(
    saved: Architecture, here: Architecture, field: str, remedy: str
) -> None:
    with pytest.raises(Refusal, match="weights do not fit") as refused:
        refuse_other_model(saved.model_dump(), here)
    assert refused.value.field == f"model.{field}"
    assert remedy in refused.value.remedy and refused.value.remedy.endswith("or leave resume_from out.")
    lacks, other_shape = _missing(saved, here)
    assert lacks or other_shape


@pytest.mark.parametrize(
    ("saved", "here"),
    [
        (HERE, llama(layers=3)),
        (HERE, llama(tied=True)),
        (llama(qk_norm=True, qkv_bias=True), HERE),
        (HERE, llama(head_dim=32, rope_theta=5e5, window=64, max_seq_len=4096)),
        (moe(shared_experts=1), moe()),
        (moe(balance="bias"), moe()),
        (moe(), moe(top_k=1, router_softmax="all", capacity_factor=1.5, balance_loss=0.1, z_loss=0.1)),
    ],
)
def test_a_model_whose_weights_the_checkpoint_has_continues(saved: Architecture, here: Architecture) -> None:
    refuse_other_model(saved.model_dump(), here)
    assert _missing(saved, here) == ([], [])


def _missing(saved: Architecture, here: Architecture) -> tuple[list[str], list[str]]:
    """Names that only `here` has, and those of other shapes, as `workers/checkpoint/reader.py` compares them."""
    had, has = _shapes(saved), _shapes(here)
    return [name for name in has if name not in had], [name for name in has if name in had and had[name] != has[name]]


def _shapes(arch: Architecture) -> dict[str, tuple[int, ...]]:
    with torch.device("meta"):
        model = make(arch)
    shapes = {name: tuple(value.shape) for name, value in model.named_parameters()}
    mixtures = [name for name, each in model.named_modules() if isinstance(each, Biased) and each.bias_update_speed]
    return shapes | {f"{name}.expert_bias": (arch.experts or 0,) for name in mixtures}


@pytest.mark.parametrize("here", [1024, 2048])
def test_another_number_of_learned_positions_is_refused(here: int) -> None:
    """The table's length is that of the longest sequence. Families with rotary positions have no table."""
    gpt2 = Architecture.model_validate(PRESETS["gpt2"]["nano"])
    saved = gpt2.model_copy(update={"max_seq_len": 3072 - here}).model_dump()
    with pytest.raises(Refusal, match=f"has {3072 - here} learned positions, not {here}") as refused:
        refuse_other_model(saved, gpt2.model_copy(update={"max_seq_len": here}))
    assert refused.value.field == "data.seq_len" and f"Set data.seq_len to {3072 - here}, " in refused.value.remedy
    refuse_other_model(HERE.model_copy(update={"max_seq_len": 4096}).model_dump(), HERE)


def test_what_is_not_known_is_not_refused() -> None:
    """A checkpoint of an older version, and modules of the user's own, name no architecture, or not all of its numbers."""
    for saved, here in ((None, HERE), (HERE.model_dump(), None), ({"layers": 4}, HERE), (HERE.model_dump(), HERE)):
        refuse_other_model(saved, here)
        assert other_numbers(saved, here) is None


def test_other_numbers_of_no_weight_are_said() -> None:
    saved = HERE.model_dump() | {"rope_theta": 500_000.0, "max_seq_len": 4096, "another": 1}
    said = "The model of the checkpoint had other numbers than this run's: rope_theta 500000.0, now 10000.0."
    assert other_numbers(saved, HERE) == said
