"""Ring attention: keys and values travel around the ranks that share a sequence, and every query meets each of them once (2310.01889).

Exact, causal or bidirectional. The sequence is split into 2R chunks and rank r holds chunks r and 2R−1−r (zigzag), so that all ranks
have the same work at each step. Step 0: the rank's own tokens under the causal mask. Then, for an earlier rank's keys, the first chunk
against all own queries; for a later rank's keys, both chunks against the own second chunk. Neither needs a mask. Bidirectional: all own
queries meet all keys in each step. Blocks are merged by the log-sum-exp of their scores (online softmax, 2205.14135). The next keys are
in transit while a block is computed.

Packed documents: a query meets the keys of its own document alone (`document_mask.py`). The blocks are the same, and each has a mask.
Blocks without any key for a query have a log-sum-exp of −∞, and so no weight. The first block has every query's own key.

Memory per rank and layer: 1/R of the sequence's activations, and two blocks of keys and values. Selective recompute keeps the output
and the log-sum-exp, and not those of the blocks (`as_one`), so it sends nothing again.
Traffic per rank, layer and micro-batch, with n = batch · sequence/R · key heads · head size: 2n(R−1) elements forward. Backward
2n(R−1) again and as many gradients, in fp32 or wider, which travel along with their keys and on to the keys' owner.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..activation_memory.selective import as_one
from ..collectives import Pending, shift
from .attention_kernels import Kernel, kernel_for
from .document_mask import WITHIN_DOCUMENTS, DocumentMask, mask_of


@dataclass(frozen=True)
class Blocks:
    """How the blocks of a softmax are computed: by which kernel, and whether under the causal mask of the whole sequence.

    `starts` [batch, sequence]: at which places the documents of its positions start, if they are packed.
    """

    kernel: Kernel
    causal: bool
    starts: Tensor | None = None

    def meeting(self, step: int, rank: int, length: int) -> tuple[slice, slice, bool | DocumentMask]:
        """Which own queries meet which of the keys from `step` ranks away, and the mask, or whether it is the causal one."""
        rows, columns = meeting(step, rank, length) if self.causal else (slice(0, length), slice(0, length))
        if self.starts is None:
            return rows, columns, self.causal and step == 0
        places = torch.arange(self.starts.shape[1], device=self.starts.device)
        ranks = len(places) // length
        queries, keys = (zigzag(places, place, ranks) for place in (rank, (rank - step) % ranks))
        return rows, columns, mask_of(self.starts, queries[rows], keys[columns], self.causal)


@dataclass(frozen=True)
class Softmax:
    """Which softmax a method computes: under the causal mask of the whole sequence if `causal`; its blocks by `kernel`.

    The default is the fastest kernel. Packed documents have a kernel of their own.
    """

    kernel: Kernel | None = None
    causal: bool = True

    def blocks(self, q: Tensor, starts: Tensor | None) -> Blocks:
        """The blocks of queries like q, whose documents begin at `starts` [batch, sequence] if they are packed."""
        if starts is not None:
            return Blocks(WITHIN_DOCUMENTS, self.causal, starts)
        return Blocks(self.kernel or kernel_for(q), self.causal)


def ring_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    group: dist.ProcessGroup,
    softmax: Softmax = Softmax(),
    starts: Tensor | None = None,
) -> Tensor:
    """This rank's rows of softmax(q·kᵀ/√size)·v, under the mask of the whole sequence.

    q [batch, heads, sequence/R, size]; k and v with a number of heads that divides q's; in zigzag order over the ranks of `group`.
    `starts` [batch, sequence]: at which places of the whole sequence the documents start, if they are packed.
    """
    out: Tensor = _RingAttention.apply(q, k, v, group, softmax.blocks(q, starts))  # type: ignore[no-untyped-call]
    return out


class _RingAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, group: dist.ProcessGroup, blocks: Blocks) -> Tensor:
        narrow, lse = as_one(lambda: _forward(q, k, v, group, blocks))
        ctx.save_for_backward(q, k, v, narrow, lse)
        ctx.group, ctx.blocks = group, blocks
        return narrow

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, lse = ctx.saved_tensors
        group: dist.ProcessGroup = ctx.group
        blocks: Blocks = ctx.blocks
        of_q = torch.zeros(q.shape, dtype=lse.dtype, device=q.device)
        held = torch.stack((k, v))
        # The gradient of the keys that this rank holds now, summed over the ranks that held them before.
        summed: Pending | None = None
        own = torch.zeros(held.shape, dtype=lse.dtype, device=q.device)
        for step in range(group.size()):
            coming = pass_on(held, step, group)
            rows, columns, masked = blocks.meeting(step, group.rank(), q.shape[2])
            keys, values = held[:, :, :, columns].unbind()
            ours = (grad[:, :, rows], q[:, :, rows])
            shares = blocks.kernel.backward(*ours, keys, values, out[:, :, rows], lse[:, :, rows], masked)
            of_q[:, :, rows] += shares[0]
            total = own if step == 0 else torch.zeros_like(own) if summed is None else summed()
            total[:, :, :, columns] += torch.stack(shares[1:])
            if step > 0:
                summed = shift(total, group)
            held = coming()
        if summed is not None:
            own += summed()
        of_k, of_v = own.to(k.dtype).unbind()
        return of_q.to(q.dtype), of_k, of_v, None, None


def _forward(q: Tensor, k: Tensor, v: Tensor, group: dist.ProcessGroup, blocks: Blocks) -> tuple[Tensor, Tensor]:
    """The output, and the log of each query's sum of exponentials, in fp32 or wider."""
    out, lse = before_merges(q)
    held = torch.stack((k, v))
    for step in range(group.size()):
        coming = pass_on(held, step, group)
        rows, columns, masked = blocks.meeting(step, group.rank(), q.shape[2])
        keys, values = held[:, :, :, columns].unbind()
        block = blocks.kernel.forward(q[:, :, rows], keys, values, masked)
        merge(out[:, :, rows], lse[:, :, rows], *block)
        held = coming()
    return out.to(q.dtype), lse


def pass_on(held: Tensor, step: int, group: dist.ProcessGroup) -> Pending:
    """Start to pass `held` to the next rank, except in the last step."""
    return shift(held, group) if step < group.size() - 1 else lambda: held


def meeting(step: int, rank: int, length: int) -> tuple[slice, slice]:
    """Which of the own queries causally attend to which of the keys from `step` ranks away. Only step 0 needs the causal mask."""
    whole, half = slice(0, length), length // 2
    if step == 0:
        return whole, whole
    return (whole, slice(0, half)) if step <= rank else (slice(half, length), whole)


def zigzag(sequence: Tensor, rank: int, ranks: int) -> Tensor:
    """What `rank` of `ranks` holds of `sequence` [tokens]: [tokens/ranks], an early and a late chunk."""
    if ranks == 1:
        return sequence
    chunks = sequence.chunk(2 * ranks)
    return torch.cat((chunks[rank], chunks[-1 - rank]))


def before_merges(q: Tensor) -> tuple[Tensor, Tensor]:
    """What the first block of keys is merged into, in fp32 or wider: an output of zeros, and the log of a sum of nothing."""
    wide = torch.promote_types(q.dtype, torch.float32)
    out = torch.zeros(q.shape, dtype=wide, device=q.device)
    return out, torch.full(q.shape[:3], -torch.inf, dtype=wide, device=q.device)


def merge(out: Tensor, lse: Tensor, block: Tensor, block_lse: Tensor) -> None:
    """Merge a block into `out` and `lse`, in place: each is weighted by its share of the common denominator."""
    both = torch.logaddexp(lse, block_lse)
    out.mul_((lse - both).exp().unsqueeze(-1)).add_(block * (block_lse - both).exp().unsqueeze(-1))
    lse.copy_(both)
