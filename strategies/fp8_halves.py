"""Linear layers in fp8 whose backward passes a pipeline's schedule runs in two halves, or whose blocks are computed again.

torchao's layer computes the gradients of its input and of its weight at once, in each half, and drops one of them. Here the first half
computes that of the input, dX = dY·W, and the second one that of the weight, dW = dYᵀ·X. Forward pass, scales and products are
torchao's, and so are the bits. A pass that is whole casts dY once, the halves cast it once each: in 16 bits it waits anyway, and kept in
8 bits it would take half as much again. Each half casts one saved tensor, W or X.

torchao's layer saves its inputs after its product, so a recomputation multiplies in a block's last layer, too. Here they are saved
before, and the recomputation ends there.

The naive twin is torchao's layer; tests compare with it. It is private to torchao, so another version is refused where it has other names.
"""

from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torchao.float8.float8_linear import Float8Linear, matmul_with_hp_or_float8_args
from torchao.float8.float8_scaling_utils import hp_tensor_to_float8_dynamic
from torchao.float8.float8_training_tensor import GemmInputRole

from .tensor_parallel.linear import needed_grads


def split_backward(block: nn.Module) -> None:
    """Let the backward passes of the block's fp8 layers run in halves. Wraps the instances' `forward`; parameter names do not change."""
    for module in block.modules():
        if isinstance(module, Float8Linear):
            module.forward = partial(_forward, module)


def _forward(layer: Any, x: Tensor) -> Tensor:
    """As `Float8Linear.forward`: [..., in] → [..., out], in the dtype of `x`."""
    # Views: `needed_grads` can ask about a view's node, not about a leaf's.
    weight_t, how = layer.weight.t(), (layer.linear_mm_config, layer.config)
    promised = _Promised.apply(x.view_as(x), weight_t, *how)  # type: ignore[no-untyped-call]
    y = cast(Tensor, _Product.apply(promised, x.detach(), weight_t.detach(), *how))  # type: ignore[no-untyped-call]
    return y if layer.bias is None else y + layer.bias.to(y.dtype)


class _Promised(torch.autograd.Function):
    """Y = X·Wᵀ without its values, which `_Product` computes. The backward pass computes what is asked for."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight_t: Tensor, products: Any, config: Any) -> Any:
        ctx.save_for_backward(x, weight_t)
        ctx.linear_mm_config, ctx.config = products, config
        return x.new_empty(()).expand(*x.shape[:-1], weight_t.shape[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight_t = ctx.saved_tensors
        for_x, for_weight = needed_grads(ctx)
        config, (grad,) = ctx.config, grads
        rows = _in_fp8(ctx, grad.flatten(0, -2), config.cast_config_grad_output, GemmInputRole.GRAD_OUTPUT)
        of_x = of_weight = None
        if for_x:
            weight = _in_fp8(ctx, weight_t, config.cast_config_weight_for_grad_input, GemmInputRole.WEIGHT)
            of_x = rows.mm(weight.t()).view_as(x)
        if for_weight:
            inputs = _in_fp8(ctx, x.flatten(0, -2), config.cast_config_input_for_grad_weight, GemmInputRole.INPUT)
            of_weight = rows.t().mm(inputs).t()
        return of_x, of_weight, None, None


class _Product(torch.autograd.Function):
    """The values of what was promised, by torchao's function. Keeps nothing."""

    @staticmethod
    def forward(ctx: Any, promised: Tensor, x: Tensor, weight_t: Tensor, products: Any, config: Any) -> Any:  # noqa: ARG004
        return matmul_with_hp_or_float8_args.apply(x, weight_t, products, config)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ARG004
        return grads[0], None, None, None, None


def _in_fp8(ctx: Any, value: Tensor, to: Any, role: Any) -> Tensor:
    """`value` in 8 bits, scaled by its own maximum as a whole: the only granularity that `fp8.py` configures."""
    found: Tensor = hp_tensor_to_float8_dynamic(value, to.target_dtype, ctx.linear_mm_config, gemm_input_role=role)
    return found
