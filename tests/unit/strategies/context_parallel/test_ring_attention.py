"""Ring attention is attention over the whole sequence, forward and backward."""

import pytest
from harness.attentions import worst_differences


@pytest.mark.parametrize("world", [2, 3, 4])
def test_a_ring_is_exact(world: int) -> None:
    kernels = ("MATH", "CPU_FLASH")
    cases = [{"kv_heads": heads, "kernel": name} for heads in (4, 2, 1) for name in kernels]
    for case, differences in zip(cases, worst_differences(world, cases), strict=True):
        assert max(differences) < 1e-14, case


def test_low_precision_is_merged_in_fp32() -> None:
    case = {"kv_heads": 2, "kernel": "CPU_FLASH", "dtype": "bfloat16"}
    (differences,) = worst_differences(4, [case])
    assert max(differences) < 0.06  # bf16 has 8 bits: 2⁻⁸ of gradients up to 6
