"""Linear layers cut in both dimensions over a grid (Xu et al., 2104.05343, section 3.2): SUMMA forward and backward.

Rank (i, j) has rows i of the tokens and columns j of the hidden state, [batch/q, seq, in/q], and of a weight [out, in] the block with
outputs j and inputs i. Layers that share an input (q, k and v; gate and up) are one product: the input travels once.

With n = batch · seq each rank sends (q−1)/q² · (n·in + in·out) elements forward, twice that backward. A bias [out] is cut over the
columns alone: the rows hold copies, and its gradient is summed over them, which sends 2(q−1)/q² · out more.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from .grid import Grid
from .linear import needed_grads
from .summa import product, product_of_transposed, product_with_transposed


class GridColumns:
    """Each layer's own columns [batch/q, seq, out/q] of hidden states [batch/q, seq, in/q]. Collective over the grid."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def __call__(self, x: Tensor, layers: Sequence[nn.Linear]) -> Sequence[Tensor]:
        # Views: where a schedule splits the backward pass, `wanted` can ask about a view's node, not about a leaf's.
        weights = [layer.weight.view_as(layer.weight) for layer in layers]
        biases = [None if layer.bias is None else layer.bias.view_as(layer.bias) for layer in layers]
        outputs: tuple[Tensor, ...] = _Linears.apply(x, self._grid, layers[0].in_features, *weights, *biases)  # type: ignore[no-untyped-call]
        return outputs


def grid_linear(layer: nn.Linear, grid: Grid, x: Tensor) -> Tensor:
    """One layer: hidden states [batch/q, seq, in/q] → [batch/q, seq, out/q]. Collective over the grid."""
    (out,) = GridColumns(grid)(x, [layer])
    return out


class _Linears(torch.autograd.Function):
    """Y = X·Wᵀ + b for the weights of all layers below one another: dX = dY·W, dW = dYᵀ·X."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, grid: Grid, inner: int, *values: Tensor | None) -> tuple[Tensor, ...]:
        weights, biases = _halves(values)
        ctx.save_for_backward(x, *weights)
        ctx.grid, ctx.inner, ctx.biased = grid, inner, [bias is not None for bias in biases]
        whole = product(x.flatten(0, -2), _below(weights).t(), inner, grid)
        outputs = whole.view(*x.shape[:-1], -1).split([len(weight) for weight in weights if weight is not None], -1)
        return tuple(y.contiguous() if bias is None else y + bias for y, bias in zip(outputs, biases, strict=True))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, *weights = ctx.saved_tensors
        grid: Grid = ctx.grid
        for_x, for_weights = needed_grads(ctx)
        grad = torch.cat([g.flatten(0, -2) for g in grads], -1) if len(grads) > 1 else grads[0].flatten(0, -2)
        of_x = None
        if for_x:
            of_x = product_with_transposed(grad, _below(weights).t(), ctx.inner, grid).view_as(x)
        of_values: list[Tensor | None] = [None] * (2 * len(weights))
        if for_weights:
            of_whole = product_of_transposed(x.flatten(0, -2), grad, ctx.inner, grid).t()
            widths = [len(weight) for weight in weights]
            of_values = [part.contiguous() for part in of_whole.split(widths)]
            of_values += _of_biases(grad, widths, ctx.biased, grid)
        return of_x, None, None, *of_values


def _of_biases(grad: Tensor, widths: list[int], biased: list[bool], grid: Grid) -> list[Tensor | None]:
    if not any(biased):
        return [None] * len(biased)
    sums = grid.column.sum(grad.sum(0)).split(widths)
    return [part if has_bias else None for part, has_bias in zip(sums, biased, strict=True)]


def _below(weights: Sequence[Tensor | None]) -> Tensor:
    """The weights as one matrix, whose outputs are those of all."""
    given = [weight for weight in weights if weight is not None]
    return given[0] if len(given) == 1 else torch.cat(given)


def _halves(values: Sequence[Tensor | None]) -> tuple[Sequence[Tensor | None], Sequence[Tensor | None]]:
    return values[: len(values) // 2], values[len(values) // 2 :]
