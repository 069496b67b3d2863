"""How a decoder is divided over a grid of ranks (`strategies/tensor_parallel/grid_apply.py`): one style per kind of module."""

import functools
from typing import cast

from torch import Tensor, nn

from ...strategies.tensor_parallel.grid import Grid, cut
from ...strategies.tensor_parallel.grid_apply import GridStyle
from ...strategies.tensor_parallel.grid_linear import GridColumns, grid_linear
from ...strategies.tensor_parallel.grid_norm import Over, copied
from ...strategies.tensor_parallel.grid_table import grid_logits, grid_lookup
from .divided_modules import logits_over, norm_over
from .norms import LayerNorm, RMSNorm


def grid_decoder_plan(columns: tuple[str, ...], *, positions: bool, heads_norms: bool) -> dict[str, GridStyle]:
    """The plan of a `Decoder` whose feed-forward has `columns` before `down`.

    `heads_norms`: attention norms its queries and keys.
    """
    plan: dict[str, GridStyle] = {"embed": table, "norm": norm, "head": head}
    if positions:
        plan["positions"] = table
    for part, layers in (("attention", ("q", "k", "v", "o")), ("mlp", (*columns, "down"))):
        plan[f"blocks.*.{part}_norm"] = norm
        plan[f"blocks.*.{part}"] = shared_input
        plan |= {f"blocks.*.{part}.{name}": linear for name in layers}
    if heads_norms:
        plan |= {f"blocks.*.attention.{name}_norm": heads_norm for name in "qk"}
    return plan


def linear(module: nn.Module, grid: Grid) -> None:
    """A weight [out, in] in both dimensions; a bias [out] over the columns."""
    layer = cast(nn.Linear, module)
    cut(layer, "weight", grid, rows=1, columns=0)
    if layer.bias is not None:
        cut(layer, "bias", grid, columns=0)
    module.forward = functools.partial(grid_linear, layer, grid)


def shared_input(module: nn.Module, grid: Grid) -> None:
    """A module that calls the layers of one input through `columns`."""
    module.columns = GridColumns(grid)  # type: ignore[assignment]


def norm(module: nn.Module, grid: Grid) -> None:
    """A norm of the hidden state: its parameters [dim] over the columns."""
    assert isinstance(module, LayerNorm | RMSNorm)
    over = Over(module.weight.shape[0], module.eps, grid.row, (grid.column,))
    for name in dict(module.named_parameters(recurse=False)):
        cut(module, name, grid, columns=0)
    norm_over(module, over)


def heads_norm(module: nn.Module, grid: Grid) -> None:
    """A norm over single heads, of which each rank has its own: the parameter stays whole."""
    module.own = functools.partial(copied, lines=(grid.row, grid.column))  # type: ignore[assignment]


def table(module: nn.Module, grid: Grid) -> None:
    """An embedding [rows, dim] in both dimensions."""
    embedding = cast(nn.Embedding, module)
    cut(embedding, "weight", grid, rows=0, columns=1)

    def forward(tokens: Tensor) -> Tensor:
        return grid_lookup(tokens, embedding.weight, embedding.num_embeddings, grid)

    module.forward = forward


def head(module: nn.Module, grid: Grid) -> None:
    """A head [vocab, dim], cut like the embedding. Its logits are a DTensor that the grid's columns divide by vocabulary."""
    layer = cast(nn.Linear, module)
    cut(layer, "weight", grid, rows=0, columns=1)
    vocab = layer.out_features

    def forward(x: Tensor) -> Tensor:
        return logits_over(grid_logits(x, layer.weight, vocab, grid), vocab, grid.columns)

    module.forward = forward
