"""Attention within packed documents is the attention of each document alone, forward and backward."""

import pytest
import torch
from harness.attentions import document_starts, each_alone, heads

from shardyard.strategies.context_parallel.packed_attention import packed_attention


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_each_document_is_alone(kv_heads: int) -> None:
    q, k, v, grad = heads(kv_heads, 24)
    inputs = [x.clone().requires_grad_() for x in (q, k, v)]
    out = packed_attention(*inputs, document_starts(24))
    out.backward(grad)
    found = [out.detach(), *(x.grad for x in inputs)]
    for one, other in zip(found, each_alone(q, k, v, grad), strict=True):
        assert (one - other).abs().max() < 1e-14


def test_one_document_has_the_causal_mask() -> None:
    q, k, v, _ = heads(2, 24)
    out = packed_attention(q, k, v, torch.zeros(2, 24, dtype=torch.int64))
    keys, values = (x.repeat_interleave(2, dim=1) for x in (k, v))
    expected = torch.nn.functional.scaled_dot_product_attention(q, keys, values, is_causal=True)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-14)


def test_bf16_computes_its_scores_in_fp32() -> None:
    q, k, v, grad = (x.bfloat16() for x in heads(2, 24))
    out = packed_attention(q, k, v, document_starts(24))
    assert out.dtype == torch.bfloat16
    exact = each_alone(*(x.double() for x in (q, k, v, grad)))[0]
    assert (out.double() - exact).abs().max() <= 2**-8 * exact.abs().max()
