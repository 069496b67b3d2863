"""Norms over a hidden dimension that the ranks of a line divide (Xu et al., 2104.05343, section 3.2): only numbers per token travel.

Rank (i, j) has tokens i and columns j, [batch/q, seq, dim/q], and columns j of weight and bias, of which the rows of the grid hold
copies. With n/q tokens each rank sends along its row, in all-reduces: LayerNorm 2 numbers per token forward and 2 backward, RMSNorm 1
and 1. Along its column it sends the gradient of its columns of the parameters, once. Mean and variance are two all-reduces one after
the other, as the difference of E[x²] and E[x]² cancels digits.

In a cube (`cube.py`) the line along which rows are counted divides the hidden dimension, and those of the two others hold copies.

Everything is computed in fp32 or wider. Kept for the backward pass: the input, and a number per token for each statistic.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .grid import Line


@dataclass(frozen=True)
class Over:
    """What a norm is over: the whole width `dim`, which the ranks of `across` divide. `eps` is added to the variance.

    Along the lines `copies` ranks hold the same columns of its parameters.
    """

    dim: int
    eps: float
    across: Line
    copies: tuple[Line, ...]

    def mean(self, numbers: Tensor) -> Tensor:
        """The mean over the whole width of numbers that each rank has summed over its own columns. Collective over `across`."""
        return self.across.sum(numbers) / self.dim

    def of_all_tokens(self, gradient: Tensor) -> Tensor:
        """The sum of a parameter's gradients over the ranks that hold copies, in place. Collective over `copies`."""
        return sum_along(self.copies, gradient)


def sum_along(lines: Iterable[Line], part: Tensor) -> Tensor:
    """The sum over the ranks of all `lines`, in place of `part`, one line after the other."""
    for line in lines:
        part = line.sum(part)
    return part


def grid_layer_norm(x: Tensor, weight: Tensor, bias: Tensor, over: Over) -> Tensor:
    """(x − mean)/√(variance + eps) · weight + bias (1607.06450) over the whole width: x [..., dim/q] → [..., dim/q]."""
    out: Tensor = _LayerNorm.apply(x, weight, bias, over)  # type: ignore[no-untyped-call]
    return out


def grid_rms_norm(x: Tensor, weight: Tensor, over: Over) -> Tensor:
    """x/√(mean(x²) + eps) · weight (1910.07467) over the whole width: x [..., dim/q] → [..., dim/q]."""
    out: Tensor = _RMSNorm.apply(x, weight, over)  # type: ignore[no-untyped-call]
    return out


def copied(parameter: Tensor, lines: tuple[Line, ...]) -> Tensor:
    """A parameter of which every rank holds a copy, and each uses it for other tokens and heads: gradients are summed over `lines`."""
    out: Tensor = _Copied.apply(parameter, lines)  # type: ignore[no-untyped-call]
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
        of_weight, of_bias = over.of_all_tokens(torch.stack([(grad * normal).sum(tokens), grad.sum(tokens)]))
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
        of_weight = over.of_all_tokens((grad * normal).sum(tuple(range(x.dim() - 1))))
        return of_x.to(x.dtype), of_weight.to(weight.dtype), None


class _Copied(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, parameter: Tensor, lines: tuple[Line, ...]) -> Tensor:
        ctx.lines = lines
        return parameter.view_as(parameter)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return sum_along(ctx.lines, grads[0].contiguous().clone()), None


def _widest(x: Tensor, weight: Tensor) -> Tensor:
    return x.to(torch.promote_types(torch.promote_types(x.dtype, weight.dtype), torch.float32))
