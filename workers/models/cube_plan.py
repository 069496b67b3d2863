"""How a decoder is divided over a cube of ranks (`strategies/tensor_parallel/cube_apply.py`): one style per kind of module."""

import functools
from typing import cast

from torch import Tensor, nn

from ...strategies.embedding_lookup import lookup
from ...strategies.tensor_parallel.cube import Cube, Way, cut_over
from ...strategies.tensor_parallel.cube_apply import CubeStyle
from ...strategies.tensor_parallel.cube_linear import CubeColumns, cube_linear
from ...strategies.tensor_parallel.cube_table import cube_lookup, cube_places, cube_whole
from ...strategies.tensor_parallel.grid_norm import Over, copied
from .divided_modules import logits_over, norm_over
from .norms import LayerNorm, RMSNorm


def cube_decoder_plan(columns: tuple[str, ...], *, positions: bool, heads_norms: bool) -> dict[str, CubeStyle]:
    """The plan of a `Decoder` whose feed-forward has `columns` before `down`.

    `heads_norms`: attention norms its queries and keys.
    """
    plan: dict[str, CubeStyle] = {"embed": table, "norm": norm, "head": head}
    if positions:
        plan["positions"] = few_rows
    for part, into, out in (("attention", ("q", "k", "v"), "o"), ("mlp", columns, "down")):
        plan[f"blocks.*.{part}_norm"] = norm
        plan[f"blocks.*.{part}"] = shared_input
        plan |= {f"blocks.*.{part}.{name}": into_block for name in into}
        plan[f"blocks.*.{part}.{out}"] = out_of_block
    if heads_norms:
        plan |= {f"blocks.*.attention.{name}_norm": heads_norm for name in "qk"}
    return plan


def into_block(module: nn.Module, cube: Cube) -> None:
    """A layer whose input is a hidden state between layers."""
    _linear(module, cube, cube.into)


def out_of_block(module: nn.Module, cube: Cube) -> None:
    """A layer whose output is added to the hidden state."""
    _linear(module, cube, cube.out_of)


def _linear(module: nn.Module, cube: Cube, way: Way) -> None:
    layer = cast(nn.Linear, module)
    cut_over(layer, "weight", [(way.gathered, 0), (way.summed, 1), (cube.depth, 0)])
    if layer.bias is not None:
        cut_over(layer, "bias", [(way.gathered, 0)])
    module.forward = functools.partial(cube_linear, layer, cube, way)


def shared_input(module: nn.Module, cube: Cube) -> None:
    """A module that calls the layers of one input through `columns`."""
    module.columns = CubeColumns(cube, cube.into)  # type: ignore[assignment]


def norm(module: nn.Module, cube: Cube) -> None:
    """A norm of the hidden state between layers: its parameters [dim] along the row line."""
    assert isinstance(module, LayerNorm | RMSNorm)
    over = Over(module.weight.shape[0], module.eps, cube.row, (cube.depth, cube.column))
    for name in dict(module.named_parameters(recurse=False)):
        cut_over(module, name, [(cube.row, 0)])
    norm_over(module, over)


def heads_norm(module: nn.Module, cube: Cube) -> None:
    """A norm over single heads, of which each rank has its own: the parameter stays whole."""
    module.own = functools.partial(copied, lines=(cube.depth, cube.row, cube.column))  # type: ignore[assignment]


def table(module: nn.Module, cube: Cube) -> None:
    """An embedding [vocab, dim], divided like a head."""
    embedding = cast(nn.Embedding, module)
    cut_over(embedding, "weight", [(cube.column, 0), (cube.row, 1), (cube.depth, 0)])

    def forward(tokens: Tensor) -> Tensor:
        return cube_lookup(tokens, embedding.weight, embedding.num_embeddings, cube)

    module.forward = forward


def few_rows(module: nn.Module, cube: Cube) -> None:
    """An embedding of few rows [rows, dim], which are all gathered: learned positions."""
    embedding = cast(nn.Embedding, module)
    module.of_hidden = functools.partial(cube_places, cube=cube)  # type: ignore[assignment]
    cut_over(embedding, "weight", [(cube.row, 1), (cube.depth, 0), (cube.column, 0)])

    def forward(places: Tensor) -> Tensor:
        return lookup(places, cube_whole(embedding.weight, embedding.num_embeddings, cube))

    module.forward = forward


def head(module: nn.Module, cube: Cube) -> None:
    """A head [vocab, dim]. Its logits are a DTensor that the cube's columns divide by vocabulary."""
    layer = cast(nn.Linear, module)
    _linear(layer, cube, cube.into)
    vocab = layer.out_features

    def forward(x: Tensor) -> Tensor:
        return logits_over(cube_linear(layer, cube, cube.into, x), vocab, cube.logits_mesh)

    module.forward = forward
