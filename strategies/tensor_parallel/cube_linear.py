"""Linear layers over a cube of ranks (Bian et al., 2105.14450, algorithms 1 and 2): each operand is gathered along one line.

A way has a line g along which inputs are gathered and a line s along which products are summed. Of an input this rank has the chunk of
its place on g of the depth's tokens, and the columns of its place on s: [batch/l², seq, in/l]. Of a weight [out, in] it has the outputs of
its place on g, of which the depth divides the rows once more, and the inputs of its place on s. In Y = X·Wᵀ then:

    forward    X gathered along g, W along the depth;  Y summed along s
    backward   dY gathered along s;  dX = dY·W summed along g, with W gathered;  dW = dYᵀ·X summed along the depth, with X gathered

With n tokens of a micro-batch each rank sends (l−1)/l³ · (n·in + in·out + n·out) elements forward and twice that backward, less n·out.
It keeps its own parts of input and weight alone. Layers that share an input (q, k and v; gate and up) are one product. A bias [out] is
divided along g; its gradient is summed over the depth and along s.

The naive twin is the same layer on whole tensors; tests compare with it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ..collectives import Pending
from .cube import Cube, Side, Way
from .linear import needed_grads


@dataclass(frozen=True)
class _Plan:
    """What a product of layers needs beside its tensors: the own outputs of each layer, and which have a bias."""

    cube: Cube
    way: Way
    widths: tuple[int, ...]
    biased: tuple[bool, ...]


class CubeColumns:
    """Each layer's own outputs [batch/l², seq, out/l] of inputs [batch/l², seq, in/l]. Collective over the cube."""

    def __init__(self, cube: Cube, way: Way) -> None:
        self._cube, self._way = cube, way

    def __call__(self, x: Tensor, layers: Sequence[nn.Linear]) -> Sequence[Tensor]:
        # Views: where a schedule splits the backward pass, `wanted` can ask about a view's node, not about a leaf's.
        weights = [layer.weight.view_as(layer.weight) for layer in layers]
        biases = [None if layer.bias is None else layer.bias.view_as(layer.bias) for layer in layers]
        widths = tuple(self._way.gathered.own(layer.out_features) for layer in layers)
        plan = _Plan(self._cube, self._way, widths, tuple(bias is not None for bias in biases))
        outputs: tuple[Tensor, ...] = _Linears.apply(x, plan, *weights, *biases)  # type: ignore[no-untyped-call]
        return outputs


def cube_linear(layer: nn.Linear, cube: Cube, way: Way, x: Tensor) -> Tensor:
    """One layer: [batch/l², seq, in/l] → [batch/l², seq, out/l]. Collective over the cube."""
    (out,) = CubeColumns(cube, way)(x, [layer])
    return out


class _Linears(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, plan: _Plan, *values: Tensor | None) -> tuple[Tensor, ...]:
        count = len(plan.widths)
        weights, biases = [w for w in values[:count] if w is not None], values[count:]
        ctx.save_for_backward(x, *weights)
        ctx.plan = plan
        inputs, whole = _tokens(x, plan.way.gathered), _whole(weights, plan)
        sums = plan.way.summed.scatter(inputs().mm(whole().t()))()
        outputs = sums.view(*x.shape[:-1], -1).split(plan.widths, -1)
        return tuple(y.contiguous() if bias is None else y + bias for y, bias in zip(outputs, biases, strict=True))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, *weights = ctx.saved_tensors
        plan: _Plan = ctx.plan
        for_x, for_weights = needed_grads(ctx)
        grad = torch.cat(grads, -1) if len(grads) > 1 else grads[0]
        coming = _tokens(grad, plan.way.summed)
        whole = _whole(weights, plan) if for_x else None
        inputs = _tokens(x, plan.way.gathered) if for_weights else None
        gathered = coming()
        leaving = None if whole is None else plan.way.gathered.scatter(gathered.mm(whole()))
        of_values: list[Tensor | None] = [None] * (2 * len(plan.widths))
        if inputs is not None:
            of_values = [*_own_parts(gathered.t().mm(inputs()), plan), *_of_biases(grad.flatten(0, -2), plan)]
        return None if leaving is None else leaving().view_as(x), None, *of_values


def _tokens(x: Tensor, line: Side) -> Pending:
    """Start to gather the tokens of `x` [batch/l², seq, width] along a line: [tokens/l, width]."""
    flat = x.flatten(0, -2)
    return line.gather(flat, len(flat) * line.size)


def _whole(weights: Sequence[Tensor], plan: _Plan) -> Pending:
    """Start to gather the weights, below one another, each with all of the depth's rows: [own outputs of all, own inputs]."""
    coming = [plan.cube.depth.gather(weight, width) for weight, width in zip(weights, plan.widths, strict=True)]
    return lambda: coming[0]() if len(coming) == 1 else torch.cat([weight() for weight in coming])


def _own_parts(of_all: Tensor, plan: _Plan) -> list[Tensor]:
    """Each weight's own gradient, of the products `of_all` [own outputs of all, own inputs] of the depth's tokens."""
    leaving = [plan.cube.depth.scatter(part) for part in of_all.split(plan.widths)]
    return [part() for part in leaving]


def _of_biases(grad: Tensor, plan: _Plan) -> list[Tensor | None]:
    if not any(plan.biased):
        return [None] * len(plan.biased)
    sums = plan.cube.depth.sum(plan.way.summed.sum(grad.sum(0))).split(plan.widths)
    return [part if has_bias else None for part, has_bias in zip(sums, plan.biased, strict=True)]
