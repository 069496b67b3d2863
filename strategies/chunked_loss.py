"""The head and the token loss over chunks of tokens: only one chunk's logits exist at a time, forward and backward.

A chunk's logits, loss and gradients are computed in the forward pass, then its logits are dropped (as in Liger Kernel, 2410.10989).
The backward pass only multiplies the gradients by the incoming one. So nothing is computed twice. The naive twin is the head
followed by `TokenLoss`, which a micro-batch of one chunk uses.

The model leaves its head to the loss and returns hidden states. ZeRO-3 frees the head's weight after the model's forward pass.
Without a pipeline the loss is therefore computed inside it; under a pipeline the weight stays gathered.

Memory: 4·V/t bytes per token of a chunk instead of a micro-batch. From forward to backward: the gradients of hidden states and of
the head's weight, which is summed over chunks in fp32. Traffic on the tensor axis: the same reductions as without chunks; with
sequence parallelism the hidden state is gathered once instead of twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from .loss import TokenLoss, from_column, loss_and_gradient, scores
from .mesh import Mesh
from .tensor_parallel.linear import local
from .tensor_parallel.tensor_axis import Axis


@runtime_checkable
class LeavesHead(Protocol):
    """A model that can return hidden states, and whose `forward(x, then)` can apply a function to them within its forward pass."""

    def leave_head(self) -> nn.Linear | None:
        """From now on return hidden states. Returns the head, None on a stage without it."""


class HeadLoss:
    """Hidden states [batch, seq, dim] → the loss, computed with `chunk` tokens at a time."""

    def __init__(self, loss: TokenLoss, head: nn.Linear, mesh: Mesh, chunk: int) -> None:
        assert head.bias is None
        self._loss: TokenLoss = loss
        self._head: nn.Linear = head
        self._chunk: int = chunk
        axis = mesh.device_mesh("tensor") if mesh.size("tensor") > 1 else None
        self._axis: Axis | None = None if axis is None else Axis(axis, mesh.layout.sequence)
        self._group: dist.ProcessGroup | None = None if axis is None else mesh.group("tensor")
        # As torch.chunk splits the vocabulary.
        self._start: int = -(-head.out_features // mesh.size("tensor")) * mesh.index("tensor")

    def __call__(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """`hidden` [batch, seq, dim] (with sequence parallelism this rank's part of seq), `targets` [batch, seq] int64.

        Returns a scalar in fp32 (fp64 for fp64), the same on all tensor ranks. Collective over the tensor axis.
        """
        work = _Work(
            from_column(targets.flatten(), self._start),
            self._chunk,
            self._head.out_features,
            self._loss.terms,
            self._loss.share(),
            self._axis,
            self._group,
            torch.is_grad_enabled(),
        )
        weight = local(self._head.weight)
        loss: Tensor = _ChunkedLoss.apply(local(hidden), weight, work)  # type: ignore[no-untyped-call]
        return loss


def leave_heads(parts: Sequence[nn.Module], loss: TokenLoss, mesh: Mesh, chunk: int) -> HeadLoss | None:
    """Let the parts leave the head to the loss. Returns that loss, None on a rank without the head."""
    heads = [part.leave_head() for part in parts if isinstance(part, LeavesHead)]
    return next((HeadLoss(loss, head, mesh, chunk) for head in heads if head is not None), None)


@dataclass(frozen=True)
class _Work:
    """What a micro-batch's loss depends on besides hidden states and weight. `targets` [n] count from the first own column."""

    targets: Tensor
    chunk: int
    vocab: int
    terms: tuple[float, float]
    share: float
    axis: Axis | None
    group: dist.ProcessGroup | None
    learns: bool


class _ChunkedLoss(torch.autograd.Function):
    """Keeps gradients instead of logits. They contain the loss scale: fp16 would round them to zero without it."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, work: _Work) -> Tensor:
        axis = work.axis
        whole = axis.gather(hidden)() if axis is not None and axis.sequence else hidden
        total, of_whole, of_weight = _over_chunks(whole.flatten(0, 1), weight, work)
        if work.learns:
            of_hidden = of_whole.view_as(whole)
            ctx.save_for_backward(of_hidden if axis is None else axis.sum(of_hidden)(), of_weight.to(weight.dtype))
        return total * work.share

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, given: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        of_hidden, of_weight = ctx.saved_tensors
        # Not in place: a schedule that splits backward passes calls this twice.
        return of_hidden * given, of_weight * given, None


def _over_chunks(rows: Tensor, weight: Tensor, work: _Work) -> tuple[Tensor, Tensor, Tensor]:
    """The summed loss of `rows` [n, dim], and its share's gradients of `rows` and, in fp32 or wider, of `weight` [own, dim]."""
    wide = torch.promote_types(weight.dtype, torch.float32)
    total = torch.zeros((), dtype=wide, device=rows.device)
    of_rows = torch.empty_like(rows if work.learns else rows[:0])
    of_weight = torch.zeros(weight.shape if work.learns else (0,), dtype=wide, device=rows.device)
    done = 0
    for part, targets in zip(rows.split(work.chunk), work.targets.split(work.chunk), strict=True):
        logits = scores(part, weight)
        loss, gradient = loss_and_gradient(logits, targets, work.vocab, work.terms, work.group)
        del logits
        total += loss
        if work.learns:
            narrow = gradient.mul_(work.share).to(weight.dtype)
            torch.mm(narrow, weight, out=of_rows[done : done + len(part)])
            _add_product(of_weight, narrow, part)
            del narrow
        del gradient
        done += len(part)
    return total, of_rows, of_weight


def _add_product(total: Tensor, gradient: Tensor, rows: Tensor) -> None:
    """Add gradientᵀ · rows to `total`. Each product is rounded to the compute dtype, their sum is not."""
    if total.dtype == rows.dtype:
        total.addmm_(gradient.t(), rows)
    else:
        total.add_(gradient.t().mm(rows))
