"""The mask of packed documents, and the kernel that computes blocks of attention under it.

A query at place i of its row may meet the keys at places start(i) … i, where its document starts at start(i) (`documents.py`). Without
the causal mask it may meet those up to the end of its document. A mask therefore needs the bounds of the queries alone: whichever keys
arrive, their places decide. It is never made whole, but for a few queries at a time, as are the scores.

The kernel is plain matrix products in fp32 or wider, over all keys of a block, also those of other documents. It computes more than a
fused kernel would. Memory while it runs: a few copies of at most `CHUNK` scores, and keys and values in fp32 or wider. It keeps what
fused attention keeps: q, k, v, output and log-sum-exp.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..packed_rules import CHUNK
from .attention_kernels import Gradients, Kernel, shared, summed


@dataclass(frozen=True)
class DocumentMask:
    """Which of the `keys` some queries may meet. Places in the whole sequence: `first` and `last` [batch, queries], and `keys` [n]."""

    first: Tensor
    last: Tensor
    keys: Tensor

    def outside(self, rows: slice = slice(None)) -> Tensor:
        """Which keys the queries `rows` may not meet: bool [batch, 1, rows, keys]."""
        first, last = self.first[:, rows].unsqueeze(-1), self.last[:, rows].unsqueeze(-1)
        return ((self.keys < first) | (self.keys > last)).unsqueeze(1)

    def chunks(self, heads: int) -> Iterator[slice]:
        """The queries, as many at a time as `heads` have `CHUNK` scores for."""
        batch, queries = self.first.shape
        size = max(1, CHUNK // max(1, batch * heads * len(self.keys)))
        return (slice(at, at + size) for at in range(0, queries, size))


def mask_of(starts: Tensor, queries: Tensor, keys: Tensor, causal: bool = True) -> DocumentMask:
    """The mask for queries and keys at these places; `starts` [batch, sequence]. A query meets no later keys if it is `causal`."""
    first = starts[:, queries]
    # A row's starts never fall, and all places of a document have the same one.
    last = queries.expand_as(first) if causal else torch.searchsorted(starts.contiguous(), first, right=True) - 1
    return DocumentMask(first, last, keys)


def _forward(q: Tensor, k: Tensor, v: Tensor, mask: DocumentMask) -> tuple[Tensor, Tensor]:
    wide = torch.promote_types(q.dtype, torch.float32)
    keys, values = shared(k, q).to(wide), shared(v, q).to(wide)
    out = torch.empty_like(q)
    lse = torch.empty(q.shape[:3], dtype=wide, device=q.device)
    for rows in mask.chunks(q.shape[1]):
        scores = _scores(q[:, :, rows].to(wide), keys, mask.outside(rows))
        lse[:, :, rows] = scores.logsumexp(-1)
        out[:, :, rows] = (_minus(scores, lse[:, :, rows]).exp() @ values).to(q.dtype)
    return out, lse


def _backward(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *of_rows: Any) -> Gradients:
    """`of_rows`: output, log-sum-exp and mask, as every kernel's backward pass takes them."""
    out, lse, mask = of_rows
    wide = lse.dtype
    keys, values = shared(k, q).to(wide), shared(v, q).to(wide)
    of_q = torch.empty_like(q)
    of_k, of_v = torch.zeros_like(keys), torch.zeros_like(values)
    for rows in mask.chunks(q.shape[1]):
        queries, given = q[:, :, rows].to(wide), grad[:, :, rows].to(wide)
        weights = _minus(_scores(queries, keys, mask.outside(rows)), lse[:, :, rows]).exp()
        own = (given * out[:, :, rows]).sum(-1, keepdim=True)
        of_scores = weights * (given @ values.mT - own) / math.sqrt(q.shape[-1])
        of_q[:, :, rows] = (of_scores @ keys).to(q.dtype)
        of_k += of_scores.mT @ queries
        of_v += weights.mT @ given
    return of_q, summed(of_k, k).to(k.dtype), summed(of_v, v).to(v.dtype)


def _scores(queries: Tensor, keys: Tensor, outside: Tensor) -> Tensor:
    return (queries @ keys.mT / math.sqrt(queries.shape[-1])).masked_fill_(outside, -torch.inf)


def _minus(scores: Tensor, lse: Tensor) -> Tensor:
    """Scores minus their log-sum-exp; −∞ for a query that may meet none of the keys, whose log-sum-exp is −∞ too."""
    return scores - lse.masked_fill(lse == -torch.inf, 0.0).unsqueeze(-1)


#: `forward(q, k, v, mask)` and `backward(grad, q, k, v, out, lse, mask)` with a `DocumentMask`.
WITHIN_DOCUMENTS = Kernel(_forward, _backward)
