"""Attention within documents on one rank: the naive twin of the context methods under the mask of packed documents.

What a softmax needs for its backward pass is its log-sum-exp, as with fused attention, so no scores are kept.
"""

from typing import Any

import torch
from torch import Tensor

from .document_mask import WITHIN_DOCUMENTS, mask_of


def packed_attention(q: Tensor, k: Tensor, v: Tensor, starts: Tensor) -> Tensor:
    """softmax(q·kᵀ/√size)·v, where each query meets the keys of its document up to itself.

    q [batch, heads, sequence, size]; k and v with a number of heads that divides q's; `starts` [batch, sequence]: at which place each
    position's document starts. Returns q's shape and dtype.
    """
    out: Tensor = _PackedAttention.apply(q, k, v, starts)  # type: ignore[no-untyped-call]
    return out


class _PackedAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, starts: Tensor) -> Tensor:
        places = torch.arange(q.shape[2], device=q.device)
        out, lse = WITHIN_DOCUMENTS.forward(q, k, v, mask_of(starts, places, places))
        ctx.save_for_backward(q, k, v, out, lse, starts)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, lse, starts = ctx.saved_tensors
        places = torch.arange(q.shape[2], device=q.device)
        mask = mask_of(starts, places, places)
        return *WITHIN_DOCUMENTS.backward(grad, q, k, v, out, lse, mask), None
