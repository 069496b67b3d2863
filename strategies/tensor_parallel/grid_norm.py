"""Norms over a hidden dimension that a grid's columns divide (Xu et al., 2104.05343, section 3.2): only numbers per token travel.

Rank (i, j) has tokens i and columns j, [batch/q, seq, dim/q], and columns j of weight and bias, of which the rows of the grid hold
copies. With n/q tokens each rank sends along its row, in all-reduces: LayerNorm 2 numbers per token forward and 2 backward, RMSNorm 1
and 1. Along its column it sends the gradient of its columns of the parameters, once. Mean and variance are two all-reduces one after
the other, as the difference of E[x²] and E[x]² cancels digits.

Everything is computed in fp32 or wider. Kept for the backward pass: the input, and a number per token for each statistic.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .grid import Grid


@dataclass(frozen=True)
class Over:
    """What a norm is over: the whole width `dim`, which the columns of `grid` divide. `eps` is added to the variance."""

    dim: int
    eps: float
    grid: Grid

    def mean(self, numbers: Tensor) -> Tensor:
        """The mean over the whole width of numbers that each rank has summed over its own columns. Collective over the row."""
        return self.grid.row.sum(numbers) / self.dim


def grid_layer_norm(x: Tensor, weight: Tensor, bias: Tensor, over: Over) -> Tensor:
    """(x − mean)/√(variance + eps) · weight + bias (1607.06450) over the whole width: x [..., dim/q] → [..., dim/q]."""
    out: Tensor = _LayerNorm.apply(x, weight, bias, over)  # type: ignore[no-untyped-call]
    return out


def grid_rms_norm(x: Tensor, weight: Tensor, over: Over) -> Tensor:
    """x/√(mean(x²) + eps) · weight (1910.07467) over the whole width: x [..., dim/q] → [..., dim/q]."""
    out: Tensor = _RMSNorm.apply(x, weight, over)  # type: ignore[no-untyped-call]
    return out


def copied(parameter: Tensor, grid: Grid) -> Tensor:
    """A parameter of which every rank holds a copy, and each uses it for other tokens and heads: gradients are summed over the grid."""
    out: Tensor = _Copied.apply(parameter, grid)  # type: ignore[no-untyped-call]
    return out


class _LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, over: Over) -> Tensor:
        wide = _widest(x, weight)
        mean = over.mean(wide.sum(-1, keepdim=True))
        centred = wide - mean
        scale = (over.mean(centred.square().sum(-1, keepdim=True)) + over.eps).rsqrt()
        ctx.save_for_backward(x, weight, mean, scale)
        ctx.over, ctx.bias = over, bias.dtype
        return (centred * scale * weight.to(wide.dtype) + bias.to(wide.dtype)).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, scale = ctx.saved_tensors
        normal, grad = (_widest(x, weight) - mean) * scale, grads[0].to(scale.dtype)
        inner = grad * weight.to(scale.dtype)
        over: Over = ctx.over
        means = over.mean(torch.stack([inner.sum(-1, keepdim=True), (inner * normal).sum(-1, keepdim=True)]))
        of_x = (inner - means[0] - normal * means[1]) * scale
        tokens = tuple(range(x.dim() - 1))
        of_weight, of_bias = over.grid.column.sum(torch.stack([(grad * normal).sum(tokens), grad.sum(tokens)]))
        return of_x.to(x.dtype), of_weight.to(weight.dtype), of_bias.to(ctx.bias), None


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, over: Over) -> Tensor:
        wide = _widest(x, weight)
        scale = (over.mean(wide.square().sum(-1, keepdim=True)) + over.eps).rsqrt()
        ctx.save_for_backward(x, weight, scale)
        ctx.over = over
        return (wide * scale * weight.to(wide.dtype)).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, scale = ctx.saved_tensors
        normal, grad = _widest(x, weight) * scale, grads[0].to(scale.dtype)
        inner = grad * weight.to(scale.dtype)
        over: Over = ctx.over
        mean = over.mean((inner * normal).sum(-1, keepdim=True))
        of_x = (inner - normal * mean) * scale
        of_weight = over.grid.column.sum((grad * normal).sum(tuple(range(x.dim() - 1))))
        return of_x.to(x.dtype), of_weight.to(weight.dtype), None


class _Copied(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, parameter: Tensor, grid: Grid) -> Tensor:
        ctx.grid = grid
        return parameter.view_as(parameter)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return ctx.grid.column.sum(ctx.grid.row.sum(grads[0].contiguous().clone())), None


def _widest(x: Tensor, weight: Tensor) -> Tensor:
    return x.to(torch.promote_types(torch.promote_types(x.dtype, weight.dtype), torch.float32))
