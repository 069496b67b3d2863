"""The shapes that memory formulas use are those of the modules' parameters."""

from typing import Any

import pytest
from harness.decoders import tiny

from shardyard.strategies.cost.model_shape import elements
from shardyard.workers.models.param_shapes import sizes

MIXTURE = {"kv_heads": 2, "experts": 4, "top_k": 2}


@pytest.mark.parametrize(
    ("family", "numbers"),
    [("llama", {}), ("gpt2", {}), ("moe", MIXTURE), ("moe", {**MIXTURE, "shared_experts": 3})],
    ids=str,
)
def test_all_parameters_are_counted(family: str, numbers: dict[str, Any]) -> None:
    arch = tiny(family, **numbers)
    found = sizes(arch, 32, spread=1)
    assert elements(found.embed) + arch.layers * elements(found.block) + elements(found.end) == arch.parameters


def test_spreading_experts_leaves_shared_ones_on_every_rank() -> None:
    arch = tiny("moe", **MIXTURE, shared_experts=3)
    whole, spread = (elements(sizes(arch, 32, spread=ranks).block) for ranks in (1, 4))
    expert = 3 * arch.dim * arch.hidden
    assert whole - spread == 3 * expert
    shared = [weight for weight in sizes(arch, 32, spread=4).block if 3 * arch.hidden in (weight.rows, weight.columns)]
    assert [weight.of_rank(2).elements for weight in shared] == [expert // 2] * 3
