"""Double ring attention: keys and values travel around windows of neighbouring ranks, and once per round to the next window.

A ring of R ranks is W windows of I ranks (rank = window · I + place). In each of W rounds a window's keys and values travel around its
inner ring. Those a rank began the round with travel at the same time to the same place of the next window, around an outer ring. So of
R − 1 messages only W − 1 leave a window, and each of these has I blocks of attention to arrive in. (Gu et al., 2406.18485, which call it
double-ring-attention.) The positions, the mask and the blocks of attention are those of `ring_attention.py`, in another order.

Memory: that of `ring_attention.py`, and one block of keys and values, in the backward pass also of gradients, in transit to the next
window. Traffic per rank, layer and micro-batch: with n as there, forward 2nW(I−1) elements inside and 2n(W−1) between windows.
Backward the same again, and as many gradients in fp32 or wider: a window's sum returns to the place of its keys by the inner ring, and
the sums of all windows to the keys' owner by the outer ring.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..activation_memory.selective import as_one
from ..collectives import Pending, shift
from .ring_attention import Blocks, Softmax, before_merges, merge, pass_on


@dataclass(frozen=True)
class Rings:
    """The ranks of this rank's window, and the ranks at its place of every window."""

    inner: dist.ProcessGroup
    outer: dist.ProcessGroup

    @property
    def rank(self) -> int:
        """This rank in the whole ring."""
        return self.outer.rank() * self.inner.size() + self.inner.rank()

    def away(self, turn: int, step: int) -> int:
        """How many ranks before this one, in the whole ring, the owner of the keys is that are here in `step` of round `turn`."""
        places, windows = self.inner.size(), self.outer.size()
        owner = (self.outer.rank() - turn) % windows * places + (self.inner.rank() - step) % places
        return (self.rank - owner) % (windows * places)


def double_ring_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rings: Rings,
    softmax: Softmax = Softmax(),  # noqa: B008  (it is frozen)
    starts: Tensor | None = None,
) -> Tensor:
    """This rank's rows of softmax(q·kᵀ/√size)·v, under the mask of the whole sequence.

    q [batch, heads, sequence/R, size]; k and v with a number of heads that divides q's; in zigzag order over the ring's ranks.
    `starts` [batch, sequence]: at which places of the whole sequence the documents start, if they are packed.
    """
    out: Tensor = _DoubleRing.apply(q, k, v, rings, softmax.blocks(q, starts))  # type: ignore[no-untyped-call]
    return out


class _DoubleRing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, rings: Rings, blocks: Blocks) -> Tensor:
        narrow, lse = as_one(lambda: _forward(q, k, v, rings, blocks))
        ctx.save_for_backward(q, k, v, narrow, lse)
        ctx.rings, ctx.blocks = rings, blocks
        return narrow

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        # Recompute lets saved tensors be read only once.
        q, k, v, out, lse = ctx.saved_tensors
        rings: Rings = ctx.rings
        rows = _Rows(q, grad, out, lse)
        of_q = torch.zeros(q.shape, dtype=lse.dtype, device=q.device)
        first = torch.stack((k, v))
        own, summed = torch.zeros(0, device=q.device), None
        for turn in range(rings.outer.size()):
            next_first = pass_on(first, turn, rings.outer)
            total = _round(ctx, turn, first, rows, of_q)
            if turn == 0:
                own = total
            else:  # the windows before this one have added their sums
                summed = shift(total if summed is None else total.add_(summed()), rings.outer)
            first = next_first()
        if summed is not None:
            own += summed()
        of_k, of_v = own.to(k.dtype).unbind()
        return of_q.to(q.dtype), of_k, of_v, None, None


def _forward(q: Tensor, k: Tensor, v: Tensor, rings: Rings, blocks: Blocks) -> tuple[Tensor, Tensor]:
    """The output, and the log of each query's sum of exponentials, in fp32 or wider."""
    out, lse = before_merges(q)
    first = torch.stack((k, v))
    for turn in range(rings.outer.size()):
        next_first, held = pass_on(first, turn, rings.outer), first
        for step in range(rings.inner.size()):
            coming, away = pass_on(held, step, rings.inner), rings.away(turn, step)
            rows, columns, masked = blocks.meeting(away, rings.rank, q.shape[2])
            keys, values = held[:, :, :, columns].unbind()
            block = blocks.kernel.forward(q[:, :, rows], keys, values, masked)
            merge(out[:, :, rows], lse[:, :, rows], *block)
            held = coming()
        first = next_first()
    return out.to(q.dtype), lse


@dataclass(frozen=True)
class _Rows:
    """Of a rank's own queries: themselves, and the output's gradient, output and log-sum-exp."""

    q: Tensor
    grad: Tensor
    out: Tensor
    lse: Tensor


def _round(ctx: Any, turn: int, first: Tensor, own: _Rows, of_q: Tensor) -> Tensor:
    """The window's sum of the gradients of `first`, the keys and values that this rank begins the round with; adds to `of_q`."""
    rings: Rings = ctx.rings
    blocks: Blocks = ctx.blocks
    home = torch.zeros(first.shape, dtype=own.lse.dtype, device=first.device)
    held, travelling = first, _nothing_yet(home)
    for step in range(rings.inner.size()):
        coming, away = pass_on(held, step, rings.inner), rings.away(turn, step)
        rows, columns, masked = blocks.meeting(away, rings.rank, own.q.shape[2])
        keys, values = held[:, :, :, columns].unbind()
        ours = (own.grad[:, :, rows], own.q[:, :, rows])
        shares = blocks.kernel.backward(*ours, keys, values, own.out[:, :, rows], own.lse[:, :, rows], masked)
        of_q[:, :, rows] += shares[0]
        total = home if step == 0 else travelling()
        total[:, :, :, columns] += torch.stack(shares[1:])
        if step > 0:
            travelling = shift(total, rings.inner)
        held = coming()
    return home.add_(travelling())


def _nothing_yet(like: Tensor) -> Pending:
    return lambda: torch.zeros_like(like)
