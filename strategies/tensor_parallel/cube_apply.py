"""Tensor parallelism in three dimensions (Bian et al., 2105.14450): activations and matrices are divided evenly over a cube of ranks.

The plan is the model's own data (module pattern → style), like that of `grid_apply.py`. The rank with the places (depth, row, column) gets
the tokens of its depth and row, [batch/l², seq]. Between layers it has hidden states of its depth and column, in the columns of its row,
[batch/l², seq, dim/l]. Inside attention and feed-forward row and column have exchanged their parts, so that columns divide the heads.

Per block of 12 dim² weights and micro-batch of n tokens each rank sends (l−1)/l³ · (16n·dim + 12 dim²) elements forward: inputs of
7n·dim elements, shared ones once, and outputs of 9n·dim. Backward it is twice that, less the outputs. What a rank keeps is 1/l³ of what
one rank alone keeps.
"""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from torch import nn

from ..layout import Refusal
from .cube import Cube
from .grid_apply import divide

#: Cuts the parameters of a module and replaces its forward pass.
CubeStyle = Callable[[nn.Module, Cube], None]


@runtime_checkable
class CubePlanned(Protocol):
    """A model that has a plan for dividing its modules over a cube."""

    def cube_plan(self) -> dict[str, CubeStyle]:
        """Module pattern (`blocks.*.attention.q`) → style, for every module that has parameters of its own."""


def apply_cube(part: nn.Module, cube: Cube) -> None:
    """Divide `part` over the cube by its model's plan. Raises `Refusal` if it has no plan, or the plan leaves out a parameter."""
    if not isinstance(part, CubePlanned):
        raise Refusal(
            "layout.tensor",
            f"{type(part).__name__} has no cube_plan(), so it cannot be divided over a cube of ranks.",
            "Use a model that has one, or tensor parallelism in one dimension.",
        )
    divide(part, part.cube_plan(), cube)
