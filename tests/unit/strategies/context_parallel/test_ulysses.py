"""Ulysses, alone and within a ring, is attention over the whole sequence, forward and backward."""

import pytest
from harness.attentions import worst_differences


@pytest.mark.parametrize(("world", "ulysses"), [(2, 2), (4, 2), (4, 4)])
def test_ulysses_is_exact_alone_and_within_a_ring(world: int, ulysses: int) -> None:
    cases = [{"ulysses": ulysses, "kv_heads": heads, "kernel": "CPU_FLASH"} for heads in (4, 2) if heads >= ulysses]
    for case, differences in zip(cases, worst_differences(world, cases), strict=True):
        assert max(differences) < 1e-14, case
