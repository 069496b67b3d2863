"""Each attention kernel returns attention, its log-sum-exp and its gradients."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from harness.attentions import heads, whole

from shardyard.strategies.context_parallel.attention_kernels import (
    CPU_FLASH,
    CUDA_FLASH,
    MATH,
    Kernel,
    kernel_for,
)

NAMES = {"MATH": MATH, "CPU_FLASH": CPU_FLASH}


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


@pytest.mark.parametrize(
    ("capability", "dtype", "size", "kernel"),
    [
        ((9, 0), torch.bfloat16, 64, CUDA_FLASH),
        ((8, 0), torch.float16, 256, CUDA_FLASH),
        ((7, 5), torch.float16, 64, MATH),  # torch's selection is not asked: the operator would refuse
        ((9, 0), torch.float32, 64, MATH),
        ((9, 0), torch.bfloat16, 60, MATH),
        ((9, 0), torch.bfloat16, 264, MATH),
        ((8, 6), torch.bfloat16, 192, CUDA_FLASH),
        ((8, 6), torch.bfloat16, 200, MATH),  # its backward pass would refuse them
        ((8, 6), torch.bfloat16, 224, MATH),
        ((8, 6), torch.bfloat16, 232, CUDA_FLASH),
        ((8, 9), torch.float16, 224, MATH),
        ((12, 0), torch.bfloat16, 224, MATH),
        ((8, 0), torch.bfloat16, 224, CUDA_FLASH),
        ((9, 0), torch.bfloat16, 224, CUDA_FLASH),
        ((10, 0), torch.bfloat16, 224, CUDA_FLASH),
    ],
)
def test_a_gpu_gets_the_fused_kernel_only_where_that_runs(
    capability: tuple[int, int], dtype: torch.dtype, size: int, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    q: Any = SimpleNamespace(device=torch.device("cuda"), dtype=dtype, shape=(1, 1, 2, size))
    assert kernel_for(q) is kernel
