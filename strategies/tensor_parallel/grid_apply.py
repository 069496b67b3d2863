"""Tensor parallelism in two dimensions (Optimus; Xu et al., 2104.05343): every activation and every matrix in blocks on a grid.

The plan is the model's own data (module pattern → style), like that of `apply.py`. Rank (i, j) gets the tokens of row i, [batch/q, seq],
and computes columns j of every hidden state, [batch/q, seq, dim/q]. Between layers nothing is gathered: a residual sum, an activation
function and attention are local, as the columns divide the heads.

Per block of 12 dim² weights and micro-batch of n tokens each rank sends (q−1)/q² · (7n·dim + 12 dim²) elements forward and twice that
backward, beside numbers per token for the norms. What it keeps is 1/q² of what one rank alone keeps.
"""

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Protocol, TypeVar, runtime_checkable

from torch import nn

from ..layout import Refusal
from .grid import Grid
from .replaced_parameters import same_weights

#: Cuts the parameters of a module and replaces its forward pass.
GridStyle = Callable[[nn.Module, Grid], None]
#: What a plan divides modules over: a grid, or a cube.
Ranks = TypeVar("Ranks")


@runtime_checkable
class GridPlanned(Protocol):
    """A model that has a plan for dividing its modules over a grid."""

    def grid_plan(self) -> dict[str, GridStyle]:
        """Module pattern (`blocks.*.attention.q`) → style, for every module that has parameters of its own."""


def apply_grid(part: nn.Module, grid: Grid) -> None:
    """Divide `part` over the grid by its model's plan. Raises `Refusal` if it has no plan, or the plan leaves out a parameter."""
    if not isinstance(part, GridPlanned):
        raise Refusal(
            "layout.tensor",
            f"{type(part).__name__} has no grid_plan(), so it cannot be divided over a grid of ranks.",
            "Use a model that has one, or tensor parallelism in one dimension.",
        )
    divide(part, part.grid_plan(), grid)


def divide(part: nn.Module, plan: Mapping[str, Callable[[nn.Module, Ranks], None]], on: Ranks) -> None:
    """Apply the styles of `plan` to the modules that they match. Raises `Refusal` if the plan leaves out a parameter."""
    with same_weights(part):
        for name, module in list(part.named_modules()):
            styles = [style for pattern, style in plan.items() if _matches(name, pattern)]
            if not styles and any(True for _ in module.parameters(recurse=False)):
                raise Refusal(
                    "layout.tensor",
                    f"the plan of {type(part).__name__} leaves out the parameters of {name}.",
                    "Name every module that has parameters in it.",
                )
            for style in styles:
                style(module, on)


def _matches(name: str, pattern: str) -> bool:
    """Whether each dotted part of `name` matches that of `pattern`."""
    parts, patterns = name.split("."), pattern.split(".")
    return len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns))
