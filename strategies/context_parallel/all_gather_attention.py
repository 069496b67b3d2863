"""All-gather attention: each rank gathers all keys and values, and computes its own queries' rows (Llama 3, 2407.21783, section 3.3.2).

One collective instead of a ring's R − 1 messages, which pays where a sequence is too short to hide them. The gather is not hidden behind
the attention. Ranks hold zigzag chunks as in `ring_attention.py`. Each of the two chunks of queries meets the keys before it without
a mask, and its own keys under the causal mask. Both blocks are merged by their log-sum-exp, because a kernel's causal block is square.
Without the causal mask there is one block. Packed documents have one block per chunk of queries: their kernel takes any mask.

The backward pass gathers again, so that no layer keeps more than its own keys, and reduce-scatters the gradients.

Memory per rank and layer: 1/R of the sequence's activations; and while it is computed keys and values of the whole sequence, in the
backward pass also their gradients. Selective recompute keeps what it keeps of a ring, and gathers nothing again in the forward pass.
Traffic per rank, layer and micro-batch, with n = batch · sequence/R · key heads · head size: 2n(R−1) elements forward. Backward
2n(R−1) again and as many gradients, in fp32 or wider: that of a ring.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..activation_memory.selective import as_one
from ..collectives import Pending, all_gather
from .document_mask import DocumentMask, mask_of
from .ring_attention import Blocks, Softmax, before_merges, merge, zigzag


@dataclass(frozen=True)
class Gather:
    """The ranks that share a sequence, and their reduce-scatter of [ranks, n]."""

    group: dist.ProcessGroup
    reduce_scatter: Callable[[Tensor, dist.ProcessGroup], Pending]


def all_gather_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gather: Gather,
    softmax: Softmax = Softmax(),  # noqa: B008  (it is frozen)
    starts: Tensor | None = None,
) -> Tensor:
    """This rank's rows of softmax(q·kᵀ/√size)·v, under the mask of the whole sequence.

    q [batch, heads, sequence/R, size]; k and v with a number of heads that divides q's; in zigzag order over the ranks of the group.
    `starts` [batch, sequence]: at which places of the whole sequence the documents start, if they are packed.
    """
    out: Tensor = _AllGatherAttention.apply(q, k, v, gather, softmax.blocks(q, starts))  # type: ignore[no-untyped-call]
    return out


class _AllGatherAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, gather: Gather, blocks: Blocks) -> Tensor:
        narrow, lse = as_one(lambda: _forward(q, k, v, gather.group, blocks))
        ctx.save_for_backward(q, k, v, narrow, lse)
        ctx.gather, ctx.blocks = gather, blocks
        return narrow

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, lse = ctx.saved_tensors
        gather: Gather = ctx.gather
        blocks: Blocks = ctx.blocks
        of_q = torch.zeros(q.shape, dtype=lse.dtype, device=q.device)
        keys, values = _gathered(k, v, gather.group)
        total = torch.zeros((2, *keys.shape), dtype=lse.dtype, device=q.device)
        for rows, columns, masked in _meetings(gather.group, q.shape[2], blocks):
            ours = (grad[:, :, rows], q[:, :, rows], keys[:, :, columns], values[:, :, columns])
            shares = blocks.kernel.backward(*ours, out[:, :, rows], lse[:, :, rows], masked)
            of_q[:, :, rows] += shares[0]
            for of_all, share in zip(total, shares[1:], strict=True):
                of_all[:, :, columns] += share
        mine = gather.reduce_scatter(_by_rank(total, gather.group.size()), gather.group)()
        of_k, of_v = mine.view(2, *k.shape).to(k.dtype).unbind()
        return of_q.to(q.dtype), of_k, of_v, None, None


def _forward(q: Tensor, k: Tensor, v: Tensor, group: dist.ProcessGroup, blocks: Blocks) -> tuple[Tensor, Tensor]:
    """The output, and the log of each query's sum of exponentials, in fp32 or wider."""
    out, lse = before_merges(q)
    keys, values = _gathered(k, v, group)
    for rows, columns, masked in _meetings(group, q.shape[2], blocks):
        block = blocks.kernel.forward(q[:, :, rows], keys[:, :, columns], values[:, :, columns], masked)
        merge(out[:, :, rows], lse[:, :, rows], *block)
    return out.to(q.dtype), lse


def _gathered(k: Tensor, v: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Keys and values of the whole sequence [2, batch, key heads, sequence, size], in its order."""
    mine = torch.stack((k, v))
    rows = all_gather(mine.flatten(), group)()
    halves = rows.view(group.size(), *mine.shape).unflatten(-2, (2, -1))
    early, late = halves.unbind(-3)
    # Rank r has chunks r and 2R−1−r.
    return torch.cat((early, late.flip(0))).movedim(0, 3).flatten(3, 4)


def _by_rank(total: Tensor, ranks: int) -> Tensor:
    """[2, batch, key heads, sequence, size] in the sequence's order → [ranks, n]: what each rank holds. The inverse of `_gathered`."""
    early, late = total.unflatten(3, (2 * ranks, -1)).movedim(3, 0).split(ranks)
    return torch.stack((early, late.flip(0)), dim=-3).flatten(1)


def _meetings(group: dist.ProcessGroup, length: int, blocks: Blocks) -> list[tuple[slice, slice, bool | DocumentMask]]:
    """Own queries, the sequence's keys that they meet, and the mask, or whether it is the causal one; `length`: of the own queries."""
    rank, ranks, half = group.rank(), group.size(), length // 2
    if not blocks.causal:
        rows, columns = slice(0, length), slice(0, ranks * length)
        if blocks.starts is None:
            return [(rows, columns, False)]
        places = torch.arange(ranks * length, device=blocks.starts.device)
        return [(rows, columns, mask_of(blocks.starts, zigzag(places, rank, ranks), places, causal=False))]
    found: list[tuple[slice, slice, bool | DocumentMask]] = []
    for rows, chunk in ((slice(0, half), rank), (slice(half, length), 2 * ranks - 1 - rank)):
        start = chunk * half
        if blocks.starts is not None:
            places = torch.arange(start + half, device=blocks.starts.device)
            found.append((rows, slice(0, start + half), mask_of(blocks.starts, places[start:], places)))
            continue
        if start:
            found.append((rows, slice(0, start), False))
        found.append((rows, slice(start, start + half), True))
    return found
