"""Gradients of what tensor ranks hold whole, which the first of them sends to the others (`tensor_parallel/whole_gradients.py`).

They travel once per step, after the reduction, in the dtype of the values that are kept. Imports no torch.
"""

from collections.abc import Callable

from . import first_rank
from .estimate import Setting
from .model_shape import Weight


def elements(setting: Setting, is_whole: Callable[[Weight], bool]) -> int:
    """How many rank 0 has of the parameters for which `is_whole`, as ZeRO shards them, of those of which three are added up at a time."""
    layout, of = setting.layout, setting.decoder
    parts = setting.cut if layout.zero else 1
    times = ((1, of.embed), (first_rank.blocks(setting), of.block), (first_rank.has_head(setting), of.end))
    return sum(
        count * weight.of(layout).chunk(parts)
        for count, part in times
        for weight in part
        if is_whole(weight) and _has_an_order(setting, weight)
    )


def _has_an_order(setting: Setting, weight: Weight) -> bool:
    """Whether more than two gradients are added up at a time: of replicas, or of tensor ranks along several lines of a grid or a cube."""
    if max(setting.cut, setting.replicas // setting.cut) > 2:
        return True
    shape = setting.layout.tensor_shape
    if shape is None or shape.division.columns <= 2:
        return False
    return weight.copied or (shape.mode == "3d" and is_vector(weight))


def in_one_dimension(weight: Weight) -> bool:
    """Whether all ranks of a tensor group without a shape hold it: norms, routers, biases of row-sharded layers."""
    return weight.cut is None


def is_copied(weight: Weight) -> bool:
    """Whether all ranks of a grid or a cube hold it: norms of heads."""
    return weight.copied


def is_vector(weight: Weight) -> bool:
    """Whether a grid's ranks of one column, or a cube's that differ in their depth alone, hold the same part of it."""
    return weight.columns == 1


def into_a_block(weight: Weight) -> bool:
    """Whether a cube's ranks that differ in their row alone hold the same part of it: biases of layers into a block."""
    return is_vector(weight) and (weight.copied or weight.cut == 0)


def between_layers(weight: Weight) -> bool:
    """The same of ranks that differ in their column alone: norms, and biases of layers out of a block."""
    return is_vector(weight) and weight.cut is None
