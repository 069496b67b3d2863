"""Embedding lookup whose gradient is summed in fp32 and rounded once, whatever the compute dtype.

torch's kernel for CPUs adds up a row's gradients in the table's dtype, token by token. bf16 then loses tens of per cent of a row
that thousands of tokens use, such as that of a space. For CUDA torch has two kernels: for more than 3,072 tokens one that sums in fp32,
and for fewer one that adds sums of 32 tokens in the table's dtype. So here fewer tokens are padded, to get the first one.
"""

from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.distributed.tensor import DTensor, Shard

#: The most tokens for which CUDA adds up in the table's dtype.
FEW: Final = 3072


class Embedding(nn.Embedding):
    """torch's `Embedding` with this gradient. Its row `padding_idx` has none."""

    def __init__(self, *args: Any, **options: Any) -> None:
        """As torch's. Raises `ValueError` for options that would change the gradient or the table."""
        super().__init__(*args, **options)
        for name in ("max_norm", "scale_grad_by_freq", "sparse"):
            if getattr(self, name):
                raise ValueError(f"{type(self).__name__} has no {name}: leave it out, or use torch.nn.Embedding.")

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens [...] int64 → [..., dim]."""
        return lookup(tokens, self.weight, self.padding_idx)


def lookup(tokens: Tensor, table: Tensor, padding: int | None = None) -> Tensor:
    """The rows of `table` [rows, dim] that `tokens` [...] select: [..., dim]. The row `padding` has no gradient.

    A DTensor's table may be sharded by columns.
    """
    kind = _kind(tokens, table)
    if kind is None:
        return F.embedding(tokens, table, padding)
    if isinstance(table, DTensor):
        assert isinstance(tokens, DTensor) and table.placements == (Shard(1),)
        own = lookup(tokens.to_local(), table.to_local(), padding)
        # The shape is given, since otherwise a DTensor would assume that all parts are equal.
        whole = torch.empty(*tokens.shape, table.shape[1], device="meta")
        placements, shape, stride = [Shard(own.dim() - 1)], whole.shape, whole.stride()
        return DTensor.from_local(own, table.device_mesh, placements, run_check=False, shape=shape, stride=stride)
    rows: Tensor = kind.apply(tokens, table, padding)  # type: ignore[no-untyped-call]
    return rows


def _kind(tokens: Tensor, table: Tensor) -> type["_Lookup"] | None:
    """How the gradient is summed; None: as torch does."""
    if table.dtype.itemsize > 2:
        return None
    if table.device.type == "cpu":
        return _Lookup
    return _PaddedLookup if table.device.type == "cuda" and tokens.numel() <= FEW else None


class _Lookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tokens: Tensor, table: Tensor, padding: int | None) -> Tensor:
        ctx.save_for_backward(tokens)
        ctx.rows, ctx.padding = len(table), padding
        return F.embedding(tokens, table)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor, None]:
        (tokens,), grad = ctx.saved_tensors, grads[0].flatten(0, -2)
        # Only the rows in use need fp32: a micro-batch uses few rows of a large vocabulary.
        used, place = tokens.flatten().unique(return_inverse=True)
        sums = torch.zeros(len(used), grad.shape[-1]).index_add_(0, place, grad.float())
        whole = grad.new_zeros(ctx.rows, grad.shape[-1])
        whole[used] = sums.to(grad.dtype)
        if ctx.padding is not None:
            whole[ctx.padding] = 0
        return None, whole, None


class _PaddedLookup(_Lookup):
    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor, None]:
        (tokens,), grad = ctx.saved_tensors, grads[0].flatten(0, -2)
        padding = FEW + 1 - len(grad)
        tokens, grad = F.pad(tokens.flatten(), (0, padding)), F.pad(grad, (0, 0, 0, padding))  # row 0 gets zeros
        skipped = -1 if ctx.padding is None else ctx.padding
        return None, torch.ops.aten.embedding_dense_backward(grad, tokens, ctx.rows, skipped, False), None
