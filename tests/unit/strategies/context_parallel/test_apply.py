"""Ring attention, Ulysses and their product are attention over the whole sequence, forward and backward."""

from typing import Any

import pytest
import torch
from harness.attentions import context_differences, heads, whole
from harness.ranks import spawn
from hypothesis import given
from hypothesis import strategies as st

from shardyard.strategies.context_parallel.apply import positions_of
from shardyard.strategies.context_parallel.attention_kernels import CPU_FLASH, MATH, Kernel, kernel_for
from shardyard.strategies.layout import Layout

NAMES = {"MATH": MATH, "CPU_FLASH": CPU_FLASH}


@pytest.mark.parametrize("world", [2, 3, 4])
def test_a_ring_is_exact(world: int) -> None:
    kernels = ("MATH", "CPU_FLASH")
    cases = [{"ulysses": 1, "kv_heads": heads, "kernel": name} for heads in (4, 2, 1) for name in kernels]
    for case, differences in zip(cases, _worst(world, cases), strict=True):
        assert max(differences) < 1e-14, case


@pytest.mark.parametrize(("world", "ulysses"), [(2, 2), (4, 2), (4, 4)])
def test_ulysses_is_exact_alone_and_within_a_ring(world: int, ulysses: int) -> None:
    cases = [{"ulysses": ulysses, "kv_heads": heads, "kernel": "CPU_FLASH"} for heads in (4, 2) if heads >= ulysses]
    for case, differences in zip(cases, _worst(world, cases), strict=True):
        assert max(differences) < 1e-14, case


def test_low_precision_is_merged_in_fp32() -> None:
    case = {"ulysses": 1, "kv_heads": 2, "kernel": "CPU_FLASH", "dtype": "bfloat16"}
    (differences,) = _worst(4, [case])
    assert max(differences) < 0.06  # bf16 has 8 bits: 2⁻⁸ of gradients up to 6


@pytest.mark.parametrize("kernel", NAMES.values(), ids=NAMES.keys())
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_kernels_give_attention_and_its_gradients(kernel: Kernel, kv_heads: int) -> None:
    q, k, v, grad = heads(kv_heads, 10)
    out, lse = kernel.forward(q, k, v, True)
    ours = (out, *kernel.backward(grad, q, k, v, out, lse, True))
    for mine, expected in zip(ours, whole(q, k, v, grad), strict=True):
        torch.testing.assert_close(mine, expected, rtol=0, atol=1e-14)


def test_the_fast_kernel_takes_parts_of_tensors_as_its_naive_twin_does() -> None:
    q, k, v, grad = heads(2, 12)
    rows, columns = slice(6, 12), slice(0, 6)
    _, far = MATH.forward(q, k, v, False)  # a softmax over more keys than the block's
    block = (q[:, :, rows], k[:, :, columns], v[:, :, columns])
    for mine, expected in zip(CPU_FLASH.forward(*block, False), MATH.forward(*block, False), strict=True):
        torch.testing.assert_close(mine, expected, rtol=0, atol=1e-14)
    given = (grad[:, :, rows], *block, q[:, :, rows], far[:, :, rows], False)
    for mine, expected in zip(CPU_FLASH.backward(*given), MATH.backward(*given), strict=True):
        torch.testing.assert_close(mine, expected, rtol=0, atol=1e-14)


def test_an_untried_torch_gets_the_naive_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    q = torch.zeros(1, 1, 2, 2)
    assert kernel_for(q) is CPU_FLASH
    monkeypatch.setattr(torch, "__version__", "9.0.0")
    assert kernel_for(q) is MATH


@given(ring=st.integers(1, 4), ulysses=st.integers(1, 4), length=st.integers(1, 3))
def test_positions_are_cut_without_rest(ring: int, ulysses: int, length: int) -> None:
    layout = Layout(context=ring * ulysses, ulysses=ulysses)
    sequence = 2 * ring * ulysses * length
    parts = [positions_of(layout, index, sequence) for index in range(layout.context)]
    assert {len(part) for part in parts} == {sequence // layout.context}
    assert sorted(torch.cat(parts).tolist()) == list(range(sequence))


def test_a_ring_gives_everyone_an_early_and_a_late_chunk() -> None:
    layout = Layout(context=4, ulysses=2)
    parts = [positions_of(layout, index, 8).tolist() for index in range(4)]
    assert parts == [[0, 1], [6, 7], [2, 3], [4, 5]]


def _worst(world: int, cases: list[dict[str, Any]]) -> list[list[float]]:
    """Of each case, the largest difference on any rank."""
    ranks = spawn(context_differences, world, cases)
    return [[max(values) for values in zip(*of_case, strict=True)] for of_case in zip(*ranks, strict=True)]
