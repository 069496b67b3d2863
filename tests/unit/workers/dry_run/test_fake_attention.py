from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from shardyard.workers.dry_run.fake_attention import attention


class Called(TorchDispatchMode):
    """Notes the names of operators."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


def test_on_a_cpu_it_is_torchs_own() -> None:
    q, k, v = torch.randn(3, 1, 4, 8, 16).unbind()
    assert torch.equal(attention(q, k, v, is_causal=True), F.scaled_dot_product_attention(q, k, v, is_causal=True))


@pytest.mark.parametrize(
    ("capability", "kv_heads", "size", "kernel"),
    [
        ((7, 5), 4, 64, "efficient"),
        ((8, 0), 4, 264, "efficient"),
        ((7, 5), 2, 64, None),  # it holds all scores
    ],
)
def test_a_gpu_takes_a_kernel_that_supports_the_heads(
    capability: tuple[int, int], kv_heads: int, size: int, kernel: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    with FakeTensorMode(), Called() as called:
        heads = (4, kv_heads, kv_heads)
        q, k, v = (torch.empty(1, n, 8, size, device="cuda", dtype=torch.float16) for n in heads)
        assert attention(q, k, v, is_causal=True, enable_gqa=kv_heads < 4).shape == q.shape
    fused = [name for name in called.names if name.startswith("_scaled_dot_product_")]
    assert [name.split("_")[4] for name in fused] == ([] if kernel is None else [kernel])
