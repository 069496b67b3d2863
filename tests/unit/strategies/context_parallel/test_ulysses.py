"""Ulysses, alone and with a ring in either order, is attention over the whole sequence, forward and backward."""

import pytest
from harness.attentions import worst_differences


@pytest.mark.parametrize(("world", "ulysses", "inner"), [(2, 2, "ulysses"), (4, 2, "ring"), (4, 4, "ulysses")])
def test_ulysses_is_exact_alone_and_with_a_ring(world: int, ulysses: int, inner: str) -> None:
    """Also where there are fewer key/value heads than ranks, which copies them."""
    layout = {"ulysses": ulysses, "context_inner": inner}
    cases = [{"layout": layout, "kv_heads": heads, "kernel": "CPU_FLASH"} for heads in (4, 2, 1)]
    for case, differences in zip(cases, worst_differences(world, cases), strict=True):
        assert max(differences) < 1e-14, case
