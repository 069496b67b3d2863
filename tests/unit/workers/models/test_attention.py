"""Attention against its definition, written out naively."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from harness.decoders import tiny
from torch._subclasses import FakeTensorMode

from shardyard.workers.models.attention import Attention, _capability, causal_attention, rotary_table, rotate


def heads(count: int, seq: int, size: int, seed: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(2, count, seq, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(
        dtype
    )


def naive(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Softmax over the past, one query at a time; query head h reads key/value head h // group."""
    out = torch.zeros_like(q)
    for h in range(q.shape[1]):
        shared = h // (q.shape[1] // k.shape[1])
        for t in range(q.shape[2]):
            scores = k[:, shared, : t + 1] @ q[:, h, t].unsqueeze(-1) / math.sqrt(q.shape[-1])
            out[:, h, t] = (scores.softmax(dim=1) * v[:, shared, : t + 1]).sum(dim=1)
    return out


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_equals_the_definition(kv_heads: int) -> None:
    q, k, v = heads(4, 9, 8, 0), heads(kv_heads, 9, 8, 1), heads(kv_heads, 9, 8, 2)
    assert torch.allclose(causal_attention(q, k, v), naive(q, k, v), atol=1e-14)


def test_grouped_heads_of_a_kernel_equal_repeated_ones() -> None:
    q, k, v = (heads(n, 16, 8, n, torch.bfloat16) for n in (4, 2, 2))
    repeated = causal_attention(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1))
    assert torch.equal(causal_attention(q, k, v), repeated)


@pytest.mark.parametrize(
    ("capability", "dtype", "size", "grouped"),
    [
        ((8, 0), torch.float16, 64, True),
        ((9, 0), torch.bfloat16, 256, True),
        ((7, 5), torch.float16, 64, False),
        ((9, 0), torch.bfloat16, 264, False),
        ((8, 6), torch.bfloat16, 224, False),
        ((9, 0), torch.float32, 64, False),
    ],
)
def test_a_gpu_gets_grouped_heads_only_where_flash_attention_runs(
    capability: tuple[int, int], dtype: torch.dtype, size: int, grouped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its other kernels know none, and the fallback would hold all scores."""
    given: list[tuple[int, int, int, bool]] = []

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, is_causal: bool, enable_gqa: bool) -> None:
        assert is_causal
        given.append((q.shape[1], k.shape[1], v.shape[1], enable_gqa))

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", attention)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    with FakeTensorMode():
        q, k, v = (torch.empty(1, n, 8, size, device="cuda", dtype=dtype) for n in (4, 2, 2))
        causal_attention(q, k, v)
    assert given == [(4, 2, 2, True) if grouped else (4, 4, 4, False)]


def test_a_compiled_graph_does_not_ask_for_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(major=7, minor=5))
    calls: list[Any] = []

    def backend(graph: torch.fx.GraphModule, _: list[torch.Tensor]) -> Any:
        calls.extend(node.target for node in graph.graph.nodes if node.op == "call_function")
        return graph.forward

    compiled = torch.compile(lambda x: x + _capability(x.device)[0], backend=backend, fullgraph=True)
    assert compiled(torch.zeros(1)) == 7
    assert torch.cuda.get_device_capability not in calls


def test_rotation_makes_scores_depend_on_distance_alone() -> None:
    q, k = (heads(1, 1, 8, seed).expand(2, 1, 12, 8) for seed in (0, 1))
    cos, sin = rotary_table(q, 10_000.0, torch.arange(12))
    scores = (rotate(q, cos, sin) @ rotate(k, cos, sin).transpose(-1, -2))[0, 0]
    for distance in range(-11, 12):
        diagonal = scores.diagonal(distance)
        assert torch.allclose(diagonal, diagonal[0].expand_as(diagonal), atol=1e-13)


def test_rotation_is_that_of_the_paper() -> None:
    """Each pair (i, i + 4) as a complex number, times e^(i·m·θ^(-2i/8)) (2104.09864, eq. 34)."""
    x = heads(1, 6, 8, 3)
    cos, sin = rotary_table(x, 500.0, torch.arange(6))
    frequency = torch.tensor([500.0 ** (-2 * i / 8) for i in range(4)], dtype=torch.float64)
    turn = torch.polar(torch.ones(6, 4, dtype=torch.float64), torch.outer(torch.arange(6).double(), frequency))
    expected = torch.complex(x[..., :4], x[..., 4:]) * turn
    assert torch.allclose(rotate(x, cos, sin), torch.cat((expected.real, expected.imag), -1), atol=1e-14)


@pytest.mark.parametrize(("dtype", "wide"), [(torch.bfloat16, torch.float32), (torch.float64, torch.float64)])
def test_tables_are_fp32_or_wider(dtype: torch.dtype, wide: torch.dtype) -> None:
    x = heads(1, 6, 8, 3, dtype)
    cos, sin = rotary_table(x, 10_000.0, torch.arange(6))
    assert cos.dtype == sin.dtype == wide
    assert rotate(x, cos, sin).dtype == dtype


def test_works_on_as_many_heads_as_its_projections_give() -> None:
    """What a tensor-parallel rank has: half the rows of q, k and v and half the columns of o."""
    whole = Attention(tiny("llama"), bias=False, rotary=True).double()
    x = torch.randn(2, 7, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    total = torch.zeros_like(x)
    for rank in range(2):
        half = Attention(tiny("llama"), bias=False, rotary=True).double()
        for name in ("q", "k", "v"):
            getattr(half, name).weight = torch.nn.Parameter(getattr(whole, name).weight.chunk(2, dim=0)[rank])
        half.o.weight = torch.nn.Parameter(whole.o.weight.chunk(2, dim=1)[rank])
        total += half(x)
    assert torch.allclose(total, whole(x), atol=1e-14)
