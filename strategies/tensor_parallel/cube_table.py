"""Tables over a cube of ranks: an embedding's lookup, and learned positions (after Bian et al., 2105.14450).

An embedding [vocab, dim] is divided like the head, a layer into logits: column and then depth divide its rows, row divides its columns. So
one table serves both, if a model ties them. A lookup is the product of one-hot rows and the table: the numbers of the depth's tokens are
gathered along the row line, the table along the depth, and what each part of the vocabulary finds is summed along the column line.

With n tokens of a micro-batch each rank sends (l−1)/l³ · (vocab·dim + n·dim) elements forward and as many backward, and the numbers of its
own tokens. Positions are few: they are divided over depth and column by rows, and gathered in whole. With packed documents each token has a
place of its own, and these places are gathered along the row line as the tokens are.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from .cube import Cube
from .grid_table import within


def cube_lookup(tokens: Tensor, table: Tensor, vocab: int, cube: Cube) -> Tensor:
    """The own hidden states [batch/l², seq, dim/l] of the sequences with the numbers `tokens` [batch/l², seq] (int64).

    The sequences are those of this rank's depth and row, the hidden states' those of its depth and column. Collective over the cube.
    """
    rows: Tensor = _Lookup.apply(tokens, table, vocab, cube)  # type: ignore[no-untyped-call]
    return rows


def cube_places(places: Tensor, cube: Cube) -> Tensor:
    """The `places` [batch/l², seq] (int64) of the sequences of this rank's depth and row, for those of its depth and column instead.

    Collective over the row line.
    """
    of_rows = cube.row.gather(places.reshape(-1, 1), places.numel() * cube.row.size)()
    return of_rows.view(cube.row.size, *places.shape)[cube.column.index]


def cube_whole(table: Tensor, rows: int, cube: Cube) -> Tensor:
    """All `rows` rows of the own columns of a table, [rows, dim/l], which depth and then column divide. Collective over the cube."""
    whole: Tensor = _Whole.apply(table, rows, cube)  # type: ignore[no-untyped-call]
    return whole


class _Lookup(torch.autograd.Function):
    """The gradient of a row in use is summed in fp32 or wider and rounded once, as in `embedding_lookup.py`."""

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, table: Tensor, vocab: int, cube: Cube) -> Tensor:
        spans = cube.column.spans(vocab)
        start, own = spans[cube.column.index]
        coming = cube.depth.gather(table, own)
        numbers = cube.row.gather(tokens.reshape(-1, 1), tokens.numel() * cube.row.size)().view(-1)
        places, elsewhere = within(numbers - start, own)
        ctx.save_for_backward(places, elsewhere)
        ctx.cube, ctx.own, ctx.dtype = cube, own, table.dtype
        block = coming()
        found = table.new_zeros(len(places), table.shape[1])
        if own:
            found = F.embedding(places, block).masked_fill(elsewhere.unsqueeze(-1), 0)
        return cube.column.scatter(found)().view(*tokens.shape, -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        places, elsewhere = ctx.saved_tensors
        cube: Cube = ctx.cube
        gradient = cube.column.gather(grads[0].flatten(0, -2), len(places))()
        wide = gradient.to(torch.promote_types(ctx.dtype, torch.float32))
        part = wide.new_zeros(ctx.own, wide.shape[1])
        if ctx.own:
            part.index_add_(0, places, wide.masked_fill(elsewhere.unsqueeze(-1), 0))
        return None, cube.depth.scatter(part)().to(ctx.dtype), None, None


class _Whole(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, rows: int, cube: Cube) -> Tensor:
        ctx.cube, ctx.rows = cube, rows
        of_depth = cube.column.gather(table, cube.depth.own(rows))()
        return cube.depth.gather(of_depth, rows)()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        cube: Cube = ctx.cube
        return cube.column.scatter(cube.depth.scatter(grads[0])())(), None, None
