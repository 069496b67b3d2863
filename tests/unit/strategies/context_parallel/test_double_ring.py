"""A double ring is attention over the whole sequence, forward and backward, as the single ring is."""

from typing import Any

import pytest
from harness.attentions import worst_differences


@pytest.mark.parametrize(
    ("world", "layout"),
    [
        (6, {"ring_window": 2}),  # with two windows the next one is also the previous one
        pytest.param(4, {"ring_window": 2}, marks=pytest.mark.full),
        pytest.param(6, {"ring_window": 3}, marks=pytest.mark.full),
        pytest.param(8, {"ring_window": 2, "ulysses": 2}, marks=pytest.mark.full),
        pytest.param(8, {"ring_window": 2, "ulysses": 2, "context_inner": "ring"}, marks=pytest.mark.full),
    ],
    ids=str,
)
def test_a_double_ring_is_exact(world: int, layout: dict[str, Any]) -> None:
    cases = [
        {"layout": layout, "kv_heads": heads, "kernel": name, "sequence": 48}
        for heads in (4, 1)
        for name in ("MATH", "CPU_FLASH")
    ]
    for case, differences in zip(cases, worst_differences(world, cases), strict=True):
        assert max(differences) < 1e-14, case


def test_low_precision_is_merged_in_fp32() -> None:
    case = {"layout": {"ring_window": 2}, "kv_heads": 2, "kernel": "CPU_FLASH", "dtype": "bfloat16"}
    (differences,) = worst_differences(4, [case])
    assert max(differences) < 0.06  # bf16 has 8 bits: 2⁻⁸ of gradients up to 6
