"""Ring Self-Attention: a ring of keys completes the scores of a rank's queries, and after the softmax a ring of values its output.

The method of Li et al. (2105.13120), before online softmax: Sⁿ = QⁿKᵀ over all keys, Oⁿ = softmax(Sⁿ)V. Whole rows of scores exist, so
nothing is merged, and any softmax could stand here. Exact, causal or bidirectional. Positions are the zigzag chunks of
`ring_attention.py`, though all ranks do the same work in any order: masked scores are computed too.

The backward pass needs one ring: keys and values travel together, and their gradients with them.

Memory per rank and layer: 1/R of the sequence's activations, and the softmax of all scores: heads · sequence/R · sequence elements.
While it is computed the scores exist twice more, in fp32 or wider.
Traffic per rank, layer and micro-batch, with n = batch · sequence/R · key heads · head size: n(R−1) elements per ring forward, 2n(R−1)
together. Backward 2n(R−1) again and as many gradients, in fp32 or wider.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..collectives import Pending, shift
from .attention_kernels import shared, summed
from .document_mask import mask_of
from .ring_attention import pass_on, zigzag


def ring_self_attention(
    q: Tensor, k: Tensor, v: Tensor, group: dist.ProcessGroup, causal: bool = True, starts: Tensor | None = None
) -> Tensor:
    """This rank's rows of softmax(q·kᵀ/√size)·v, if `causal` under the causal mask of the whole sequence.

    q [batch, heads, sequence/R, size]; k and v with a number of heads that divides q's; in zigzag order over the ranks of `group`.
    `starts` [batch, sequence]: at which places of the whole sequence the documents start, if they are packed.
    """
    out: Tensor = _RingSelfAttention.apply(q, k, v, group, _Mask(group, causal, starts))  # type: ignore[no-untyped-call]
    return out


@dataclass(frozen=True)
class _Mask:
    """The mask of the whole sequence, rank by rank of its keys; `starts` as in `ring_self_attention`."""

    group: dist.ProcessGroup
    causal: bool
    starts: Tensor | None

    def put_on(self, scores: Tensor, owner: int) -> Tensor:
        """`scores` [batch, heads, queries, keys of `owner`], −∞ where a query may not meet a key."""
        if not self.causal and self.starts is None:
            return scores
        sequence = torch.arange(self.group.size() * scores.shape[2], device=scores.device)
        queries, keys = (zigzag(sequence, rank, self.group.size()) for rank in (self.group.rank(), owner))
        if self.starts is None:
            return scores.masked_fill(keys > queries.unsqueeze(1), -torch.inf)
        return scores.masked_fill(mask_of(self.starts, queries, keys, self.causal).outside(), -torch.inf)


class _RingSelfAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, group: dist.ProcessGroup, mask: _Mask) -> Tensor:
        wide = torch.promote_types(q.dtype, torch.float32)
        # [batch, heads, queries, rank, its keys]
        scores = torch.empty((*q.shape[:3], group.size(), k.shape[2]), dtype=wide, device=q.device)
        held = k.contiguous()
        for step in range(group.size()):
            coming, owner = pass_on(held, step, group), _owner(step, group)
            block = q.to(wide) @ shared(held, q).to(wide).mT / math.sqrt(q.shape[-1])
            scores[:, :, :, owner] = mask.put_on(block, owner)
            held = coming()
        weights = scores.flatten(-2).softmax(-1).to(q.dtype).view_as(scores)
        del scores
        out = torch.zeros(q.shape, dtype=wide, device=q.device)
        held = v.contiguous()
        for step in range(group.size()):
            coming = pass_on(held, step, group)
            out += weights[:, :, :, _owner(step, group)] @ shared(held, q)
            held = coming()
        narrow = out.to(q.dtype)
        ctx.save_for_backward(q, k, v, narrow, weights)
        ctx.group = group
        return narrow

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, weights = ctx.saved_tensors
        group: dist.ProcessGroup = ctx.group
        wide = torch.promote_types(q.dtype, torch.float32)
        # The gradient of a softmax's row needs the row's sum of weight · gradient, which is that of output · gradient.
        row = (grad.to(wide) * out).sum(-1, keepdim=True)
        of_q = torch.zeros(q.shape, dtype=wide, device=q.device)
        held = torch.stack((k, v))
        own = torch.zeros(held.shape, dtype=wide, device=q.device)
        # The gradient of the keys that this rank holds now, summed over the ranks that held them before.
        travelling: Pending = lambda: torch.zeros_like(own)  # noqa: E731
        for step in range(group.size()):
            coming = pass_on(held, step, group)
            keys, values = held.to(wide).unbind()
            block = weights[:, :, :, _owner(step, group)].to(wide)
            of_scores = block * (grad.to(wide) @ shared(values, q).mT - row) / math.sqrt(q.shape[-1])
            of_q += of_scores @ shared(keys, q)
            of_k, of_v = of_scores.mT @ q.to(wide), block.mT @ grad.to(wide)
            total = own if step == 0 else travelling()
            total += torch.stack((summed(of_k, k), summed(of_v, v)))
            if step > 0:
                travelling = shift(total, group)
            held = coming()
        own += travelling()
        of_k, of_v = own.to(k.dtype).unbind()
        return of_q.to(q.dtype), of_k, of_v, None, None


def _owner(step: int, group: dist.ProcessGroup) -> int:
    """The rank whose keys are here in `step`."""
    return (group.rank() - step) % group.size()
