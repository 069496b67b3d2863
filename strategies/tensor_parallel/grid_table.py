"""Tables of the vocabulary, cut in both dimensions over a grid: an embedding's lookup and a head's logits (2104.05343, section 3.2).

Rank (i, j) has of a table [vocab, dim] the block with rows i and columns j, cut as by `torch.chunk`: the last rows of the grid have
fewer rows, or none. A lookup is the product of one-hot rows and the table, of which only the table travels. Logits are the product of
hidden states and the transposed table. So one table serves both, if a model ties them.

With n = batch · seq each rank sends (q−1)/q² times: in a lookup vocab·dim forward and backward; in a head vocab·(n + dim) forward and
twice that backward.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from .grid import Grid, one_ahead
from .linear import needed_grads
from .summa import product, product_of_transposed, product_with_transposed


def grid_lookup(tokens: Tensor, table: Tensor, vocab: int, grid: Grid) -> Tensor:
    """The own columns [batch/q, seq, dim/q] of the rows that this row's `tokens` [batch/q, seq] (int64) select.

    Collective over the grid's columns.
    """
    rows: Tensor = _Lookup.apply(tokens, table, vocab, grid)  # type: ignore[no-untyped-call]
    return rows


def grid_logits(x: Tensor, table: Tensor, vocab: int, grid: Grid) -> Tensor:
    """The logits [batch/q, seq, own] of hidden states [batch/q, seq, dim/q]: those of the column's part of the vocabulary.

    Collective over the grid.
    """
    # A view, whose node `wanted` can ask about: see `grid_linear.py`.
    logits: Tensor = _Logits.apply(x, table.view_as(table), vocab, grid)  # type: ignore[no-untyped-call]
    return logits


class _Lookup(torch.autograd.Function):
    """The gradient of a row in use is summed in fp32 or wider and rounded once, as in `embedding_lookup.py`."""

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, table: Tensor, vocab: int, grid: Grid) -> Tensor:
        ctx.save_for_backward(tokens)
        ctx.vocab, ctx.grid, ctx.dtype = vocab, grid, table.dtype
        spans, width = grid.column.spans(vocab), table.shape[1]
        found = table.new_zeros(*tokens.shape, width)
        blocks = one_ahead(lambda turn: grid.column.broadcast(table, turn, (spans[turn][1], width)), grid.size)
        for (start, rows), block in zip(spans, blocks, strict=True):
            own, elsewhere = within(tokens - start, rows)
            if rows:
                found += F.embedding(own, block).masked_fill(elsewhere.unsqueeze(-1), 0)
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (tokens,) = ctx.saved_tensors
        grid: Grid = ctx.grid
        grad = grads[0].to(torch.promote_types(ctx.dtype, torch.float32))
        own = None
        for turn, (start, rows) in enumerate(grid.column.spans(ctx.vocab)):
            places, elsewhere = within(tokens - start, rows)
            part = grad.new_zeros(rows, grad.shape[-1])
            if rows:
                part.index_add_(0, places.flatten(), grad.masked_fill(elsewhere.unsqueeze(-1), 0).flatten(0, -2))
            whole = grid.column.reduce(part, turn)()
            own = whole if turn == grid.column.index else own
        assert own is not None
        return None, own.to(ctx.dtype), None, None


def within(places: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """`places` with 0 for those that are not among `rows`, and which those are."""
    elsewhere = (places < 0) | (places >= rows)
    return places.masked_fill(elsewhere, 0), elsewhere


class _Logits(torch.autograd.Function):
    """L = X·Eᵀ: dX = dL·E, dE = dLᵀ·X."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, table: Tensor, vocab: int, grid: Grid) -> Tensor:
        ctx.save_for_backward(x, table)
        ctx.vocab, ctx.grid = vocab, grid
        scores: Tensor = product_with_transposed(x.flatten(0, -2), table, vocab, grid).unflatten(0, x.shape[:-1])
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, table = ctx.saved_tensors
        for_x, for_table = needed_grads(ctx)
        grad = grads[0].flatten(0, -2)
        of_x = product(grad, table, ctx.vocab, ctx.grid).view_as(x) if for_x else None
        of_table = product_of_transposed(grad, x.flatten(0, -2), ctx.vocab, ctx.grid) if for_table else None
        return of_x, of_table, None, None
