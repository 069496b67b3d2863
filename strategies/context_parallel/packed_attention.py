"""Attention within documents on one rank: the naive twin of the context methods under the mask of packed documents.

What a softmax needs for its backward pass is its log-sum-exp, as with fused attention, so no scores are kept.

A CPU takes one document after the other by the fused kernel, and so computes no score between documents. Other devices, and halves, use
the kernel with the mask: the host does not know where documents end there, and would have to wait.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .attention_kernels import CPU_FLASH, Gradients, Kernel, kernel_for
from .document_mask import WITHIN_DOCUMENTS, mask_of

#: Rows, and the places of one of their documents.
Documents = Sequence[tuple[slice, slice]]


def packed_attention(q: Tensor, k: Tensor, v: Tensor, starts: Tensor) -> Tensor:
    """softmax(q·kᵀ/√size)·v, where each query meets the keys of its document up to itself.

    q [batch, heads, sequence, size]; k and v with a number of heads that divides q's; `starts` [batch, sequence]: at which place each
    position's document starts. Returns q's shape and dtype.
    """
    out: Tensor = _PackedAttention.apply(q, k, v, starts)  # type: ignore[no-untyped-call]
    return out


def has_documents_alone(q: Tensor) -> bool:
    """Whether documents are computed one by one."""
    return kernel_for(q) is CPU_FLASH and q.dtype.itemsize >= torch.float32.itemsize


def documents_in(starts: Tensor) -> Documents:
    """The documents of rows with these `starts` [batch, sequence]. The host waits for them."""
    batch, sequence = starts.shape
    places = torch.arange(sequence, device=starts.device)
    begins: list[list[int]] = (starts == places).nonzero().tolist()
    ends = [*begins[1:], [batch, 0]]
    return [
        (slice(row, row + 1), slice(place, end if following == row else sequence))
        for (row, place), (following, end) in zip(begins, ends, strict=True)
    ]


class _PackedAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, starts: Tensor) -> Tensor:
        kernel, mask = _kernel(q, starts)
        out, lse = kernel.forward(q, k, v, mask)
        ctx.save_for_backward(q, k, v, out, lse, starts)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, lse, starts = ctx.saved_tensors
        kernel, mask = _kernel(q, starts)
        return *kernel.backward(grad, q, k, v, out, lse, mask), None


def _kernel(q: Tensor, starts: Tensor) -> tuple[Kernel, Any]:
    """The kernel for q, and what it takes in the place of a mask."""
    if has_documents_alone(q):
        return EACH_DOCUMENT, documents_in(starts)
    places = torch.arange(q.shape[2], device=q.device)
    return WITHIN_DOCUMENTS, mask_of(starts, places, places)


def _forward(q: Tensor, k: Tensor, v: Tensor, documents: Documents) -> tuple[Tensor, Tensor]:
    out = torch.empty_like(q)
    lse = torch.empty(q.shape[:3], dtype=q.dtype, device=q.device)
    for row, part in documents:
        queries, keys, values = (x[row, :, part] for x in (q, k, v))
        out[row, :, part], lse[row, :, part] = CPU_FLASH.forward(queries, keys, values, True)
    return out, lse


def _backward(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *of_rows: Any) -> Gradients:
    """`of_rows`: output, log-sum-exp and documents."""
    out, lse, documents = of_rows
    found = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    for row, part in documents:
        given, queries, keys, values, own, own_lse = (x[row, :, part] for x in (grad, q, k, v, out, lse))
        alone = CPU_FLASH.backward(given, queries, keys, values, own, own_lse, True)
        for gradient, of_document in zip(found, alone, strict=True):
            gradient[row, :, part] = of_document
    return found


#: `forward(q, k, v, documents)` and `backward(grad, q, k, v, out, lse, documents)`.
EACH_DOCUMENT = Kernel(_forward, _backward)
