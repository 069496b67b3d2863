"""Attention over gathered keys and values is attention over the whole sequence, forward and backward, as the ring is."""

from typing import Any

import pytest
from harness.attentions import worst_differences

GATHER = {"context_method": "all-gather"}


@pytest.mark.parametrize(
    ("world", "layout"),
    [
        (2, GATHER),
        (4, {**GATHER, "ulysses": 2}),
        pytest.param(3, GATHER, marks=pytest.mark.full),
        pytest.param(4, GATHER, marks=pytest.mark.full),
        pytest.param(4, {**GATHER, "ulysses": 2, "context_inner": "ring"}, marks=pytest.mark.full),
    ],
    ids=str,
)
def test_gathered_keys_are_exact(world: int, layout: dict[str, Any]) -> None:
    kernels = ("MATH", "CPU_FLASH")
    cases = [{"layout": layout, "kv_heads": heads, "kernel": name} for heads in (4, 2, 1) for name in kernels]
    for case, differences in zip(cases, worst_differences(world, cases), strict=True):
        assert max(differences) < 1e-14, case


def test_low_precision_is_merged_in_fp32() -> None:
    case = {"layout": GATHER, "kv_heads": 2, "kernel": "CPU_FLASH", "dtype": "bfloat16"}
    (differences,) = worst_differences(2, [case])
    assert max(differences) < 0.06  # bf16 has 8 bits: 2⁻⁸ of gradients up to 6
