"""A decoder cut over the tensor axis is the same decoder, on real ranks in float64."""

from typing import Any

import pytest
from harness.decoders import differences
from harness.ranks import spawn

CASES = {
    2: [
        {"arch": {"family": family, "tied": tied}, "sequence": sequence}
        for family in ("llama", "gpt2")
        for tied in (False, True)
        for sequence in (False, True)
    ]
    + [
        {"arch": {"family": "llama", "head_dim": 6, "qkv_bias": True, "qk_norm": True}, "sequence": sequence}
        for sequence in (False, True)
    ],
    # Of a vocabulary of 9 the four ranks have 3, 3, 3 rows and none.
    4: [{"arch": {"family": "llama", "kv_heads": 4}, "sequence": sequence} for sequence in (False, True)]
    + [
        {"arch": {"family": "gpt2", "tied": tied, "vocab": 9}, "sequence": sequence}
        for tied in (False, True)
        for sequence in (False, True)
    ]
    + [{"arch": {"family": "gpt2", "tied": True, "vocab": 65}, "sequence": True}],
}


@pytest.mark.parametrize("world", CASES)
def test_tensor_parallel_decoders_equal_the_whole_one(world: int) -> None:
    results = spawn(differences, world, CASES[world])
    for rank_results in results:
        for case, found in zip(CASES[world], rank_results, strict=True):
            check(case, found)


def check(case: dict[str, Any], found: dict[str, Any]) -> None:
    assert found["plain"] == [], case
    assert found["names"], case
    assert found["matrices_cut"], case
    assert found["logits"] < 1e-12, case
    worst = max(found["gradients"], key=found["gradients"].get)
    assert found["gradients"][worst] < 1e-12, (case, worst)
