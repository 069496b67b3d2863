"""Ring Self-Attention is attention over the whole sequence, forward and backward, as the ring with online softmax is."""

from typing import Any

import pytest
from harness.attentions import worst_differences

SCORES = {"context_method": "ring-self-attention"}


@pytest.mark.parametrize(
    ("world", "layout"),
    [
        (3, SCORES),
        pytest.param(2, SCORES, marks=pytest.mark.full),
        pytest.param(4, SCORES, marks=pytest.mark.full),
        pytest.param(4, {**SCORES, "ulysses": 2}, marks=pytest.mark.full),
        pytest.param(4, {**SCORES, "ulysses": 2, "context_inner": "ring"}, marks=pytest.mark.full),
    ],
    ids=str,
)
def test_whole_scores_are_exact(world: int, layout: dict[str, Any]) -> None:
    cases = [{"layout": layout, "kv_heads": heads, "kernel": "MATH"} for heads in (4, 2, 1)]
    for case, differences in zip(cases, worst_differences(world, cases), strict=True):
        assert max(differences) < 1e-14, case


def test_low_precision_is_summed_in_fp32() -> None:
    case = {"layout": SCORES, "kv_heads": 2, "kernel": "MATH", "dtype": "bfloat16"}
    (differences,) = worst_differences(2, [case])
    assert max(differences) < 0.06  # bf16 has 8 bits: 2⁻⁸ of gradients up to 6
