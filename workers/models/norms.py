"""Norms over the last dim. They compute on plain tensors, whatever shards the model.

The overhead of DTensors for each operation, forward and backward, is more than the norm itself costs at small sizes. Under tensor
parallelism `own` returns the plain tensor of a parameter.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

#: A parameter → the plain tensor that this rank computes with.
Own = Callable[[Tensor], Tensor]


def as_it_is(parameter: Tensor) -> Tensor:
    """The parameter itself: it is not sharded."""
    return parameter


class LayerNorm(nn.LayerNorm):
    """torch's (1607.06450), with weight and bias, whose gradients are summed in fp32 over all tokens."""

    def __init__(self, dim: int, eps: float) -> None:
        super().__init__(dim, eps=eps)
        self.own: Own = as_it_is

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = self.own(self.weight), self.own(self.bias)
        if x.device.type != "cpu" or x.dtype.itemsize > 2:
            return F.layer_norm(x, self.normalized_shape, weight, bias, self.eps)
        out: Tensor = _LayerNorm.apply(x, weight, bias, self.eps)  # type: ignore[no-untyped-call]
        return out


class _LayerNorm(torch.autograd.Function):
    """torch's kernels for CPUs in fp32.

    In bf16 they sum the gradients of weight and bias in bf16: a bias is off by 30% after 2,000 tokens.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        wide = _widest(x, weight)
        affine = (weight.to(wide.dtype), bias.to(wide.dtype))
        out, mean, scale = torch.native_layer_norm(wide, weight.shape, *affine, eps)
        ctx.save_for_backward(x, weight, bias, mean, scale)
        return out.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        x, weight, bias, mean, scale = ctx.saved_tensors
        wide = _widest(x, weight)
        affine = (weight.to(wide.dtype), bias.to(wide.dtype))
        of_x, of_weight, of_bias = torch.ops.aten.native_layer_norm_backward(
            grads[0].to(wide.dtype), wide, weight.shape, mean, scale, *affine, [True, True, True]
        )
        return of_x.to(x.dtype), of_weight.to(weight.dtype), of_bias.to(bias.dtype), None


class RMSNorm(nn.Module):
    """x / √(mean(x²) + eps) · weight over the last dim (1910.07467), computed in fp32 or wider; returns x's dtype."""

    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))
        self.own: Own = as_it_is

    def forward(self, x: Tensor) -> Tensor:
        weight = self.own(self.weight)
        if x.is_cuda:  # a fused kernel, which requires a single dtype and saves as little
            wide = torch.promote_types(x.dtype, weight.dtype)
            return F.rms_norm(x.to(wide), weight.shape, weight.to(wide), self.eps).to(x.dtype)
        out: Tensor = _RMSNorm.apply(x, weight, self.eps)  # type: ignore[no-untyped-call]
        return out


class _RMSNorm(torch.autograd.Function):
    """Saves its input and one number per token. torch's own, if it has no fused kernel, also saves the normalised input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        wide = _widest(x, weight)
        scale = (wide.square().mean(-1, keepdim=True) + eps).rsqrt()
        ctx.save_for_backward(x, weight, scale)
        return (wide * scale * weight.to(wide.dtype)).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight, scale = ctx.saved_tensors
        normal, grad = _widest(x, weight) * scale, grads[0].to(scale.dtype)
        inner = grad * weight.to(scale.dtype)
        of_x = (inner - normal * (inner * normal).mean(-1, keepdim=True)) * scale
        of_weight = (grad * normal).sum(tuple(range(x.dim() - 1)))
        return of_x.to(x.dtype), of_weight.to(weight.dtype), None


def _widest(x: Tensor, weight: Tensor) -> Tensor:
    """x in fp32 or wider: autocast brings bf16 beside an fp32 weight."""
    return x.to(torch.promote_types(torch.promote_types(x.dtype, weight.dtype), torch.float32))
