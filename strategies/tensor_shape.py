"""The shape of a tensor group of two dimensions, of two with a depth, or of three. Imports no torch.

`tensor: {mode: 2d, shape: [2, 2]}` becomes `tensor: 4` with the shape beside it: code that asks for the number of ranks sees a number.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import Field, ValidationInfo, field_validator

from .number_list import FromList
from .number_object import NumberObject, number_or

#: The most ranks of a tensor group.
MOST_RANKS: Final = 1024
#: More rows than that are taken for a typing error.
_MOST = 32

Mode = Literal["2d", "2.5d", "3d"]

#: What the numbers of a shape must be, by mode.
_RULES: Final[Mapping[Mode, str]] = {
    "2d": f"a grid has as many columns as rows, from 2 to {_MOST}, such as [2, 2]",
    "2.5d": f"a grid with a depth is [q, q, d], with q from 2 to {_MOST} and d from 1 to q, such as [2, 2, 2]",
    "3d": "a cube has three equal sides of 2 or more, such as [2, 2, 2]",
}


@dataclass(frozen=True)
class Division:
    """Into how many parts a tensor group's shape divides what. Without a shape each number is one."""

    columns: int = 1  # of the width of hidden states, and of the heads
    rows: int = 1  # of a micro-batch's sequences
    copies: int = 1  # ranks of the group that hold the same parameters


class TensorShape(NumberObject):
    """A grid of q rows and q columns of ranks (Xu et al., 2104.05343), d such grids, its depth (Wang et al., 2105.14500), or a cube of
    l × l × l ranks (Bian et al., 2105.14450).
    """

    mode: Mode = Field(
        description="`2d`: every activation and every matrix in blocks on a grid of ranks. "
        "`2.5d`: several grids, which share a micro-batch's sequences and hold the same blocks of matrices. "
        "`3d`: every activation and every matrix divided evenly over a cube of ranks."
    )
    shape: Annotated[tuple[int, ...], FromList] = Field(
        min_length=2,
        max_length=3,
        description="Rows and columns of the grid, which are equal, and in 2.5-D the number of grids, at most as many: "
        "[q, q] for q² ranks, [q, q, d] for q²d ranks. Of a cube its three equal sides: [l, l, l] for l³ ranks.",
    )

    @field_validator("shape")
    @classmethod
    def _is_of_its_mode(cls, given: tuple[int, ...], info: ValidationInfo) -> tuple[int, ...]:
        mode: Mode | None = info.data.get("mode")
        if mode is not None and not _is_shape(mode, given):
            raise ValueError(_RULES[mode])
        return given

    @property
    def depth(self) -> int:
        """d: how many grids there are; l of a cube."""
        return self.shape[2] if len(self.shape) > 2 else 1

    @property
    def ranks(self) -> int:
        return math.prod(self.shape)

    @property
    def number(self) -> int:
        return self.ranks

    @property
    def beside(self) -> dict[str, Any]:
        return {"tensor_shape": self}

    @property
    def division(self) -> Division:
        """Each row of each grid, or layer of a cube, has other sequences. All grids have the same parameters."""
        return Division(self.shape[1], self.shape[0] * self.depth, self.depth if self.mode == "2.5d" else 1)

    def of_side(self, side: int) -> list[int]:
        """The numbers of a shape of the same mode with `side` columns."""
        depth = side if self.mode == "3d" else min(side, self.depth)
        return [side, side, depth][: len(self.shape)]

    def of_sides(self, sides: Iterable[int]) -> list[list[int]]:
        """The numbers of those of these shapes that a layout may have."""
        shapes = [self.of_side(side) for side in sides if 2 <= side <= _MOST]
        return [shape for shape in shapes if math.prod(shape) <= MOST_RANKS]

    def __str__(self) -> str:
        words = " × ".join(map(str, self.shape))
        return words if self.mode == "2d" else f"{words} ({self.mode})"


def _is_shape(mode: Mode, given: tuple[int, ...]) -> bool:
    """Whether the numbers are a shape of the mode."""
    side, *others = given
    if not 2 <= side <= _MOST or others[0] != side:
        return False
    if mode == "2d":
        return len(given) == 2
    return len(given) == 3 and (given[2] == side if mode == "3d" else 1 <= given[2] <= side)


_NUMBERS: Final = {
    "type": "array",
    "items": {"type": "integer", "minimum": 1, "maximum": _MOST},
    "minItems": 2,
    "maxItems": 3,
}
#: The JSON Schema of a degree that may be a shape.
degree_or_shape: Final = number_or(
    {"mode": {"type": "string", "enum": list(_RULES)}, "shape": _NUMBERS}, ("mode", "shape")
)
