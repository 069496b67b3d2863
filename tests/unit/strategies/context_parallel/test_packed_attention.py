"""Attention within packed documents is the attention of each document alone, forward and backward."""

import pytest
import torch
from harness.attentions import document_slices, document_starts, each_alone, heads

from shardyard.strategies.context_parallel import packed_attention as module
from shardyard.strategies.context_parallel.packed_attention import documents_in, has_documents_alone, packed_attention


@pytest.mark.parametrize("alone", [True, False], ids=["documents", "mask"])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_each_document_is_alone(kv_heads: int, alone: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v, grad = heads(kv_heads, 24)
    assert has_documents_alone(q)
    monkeypatch.setattr(module, "has_documents_alone", lambda _: alone)
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


def test_documents_are_found_in_every_row() -> None:
    starts = document_starts(24)
    expected = [(slice(row, row + 1), part) for row in (0, 1) for part in document_slices(row, 24)]
    assert list(documents_in(starts)) == expected
    whole = torch.zeros(2, 5, dtype=torch.int64)
    assert list(documents_in(whole)) == [(slice(0, 1), slice(0, 5)), (slice(1, 2), slice(0, 5))]


def test_bf16_computes_its_scores_in_fp32() -> None:
    q, k, v, grad = (x.bfloat16() for x in heads(2, 24))
    assert not has_documents_alone(q)
    out = packed_attention(q, k, v, document_starts(24))
    assert out.dtype == torch.bfloat16
    exact = each_alone(*(x.double() for x in (q, k, v, grad)))[0]
    assert (out.double() - exact).abs().max() <= 2**-8 * exact.abs().max()
