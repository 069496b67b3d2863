"""The shape of a tensor group of two dimensions. Imports no torch.

`tensor: {mode: 2d, shape: [2, 2]}` becomes `tensor: 4` with the shape beside it: code that asks for the number of ranks sees a number.
"""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, field_validator

#: More rows than that are taken for a typing error.
_MOST = 32


class TensorShape(BaseModel):
    """A grid of q rows and q columns of ranks (Xu et al., 2104.05343)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mode: Literal["2d"] = Field(description="`2d`: every activation and every matrix in blocks on a grid of ranks.")
    shape: tuple[int, int] = Field(description="Rows and columns of the grid, which are equal: [q, q] for q² ranks.")

    @field_validator("shape")
    @classmethod
    def _is_square(cls, given: tuple[int, int]) -> tuple[int, int]:
        rows, columns = given
        if rows != columns or not 2 <= rows <= _MOST:
            raise ValueError(f"a grid has as many columns as rows, from 2 to {_MOST}, such as [2, 2]")
        return given

    @property
    def rows(self) -> int:
        """q."""
        return self.shape[0]

    @property
    def ranks(self) -> int:
        return self.shape[0] * self.shape[1]

    def __str__(self) -> str:
        return f"{self.shape[0]} × {self.shape[1]}"


def shape_beside_the_degree(given: Any) -> Any:
    """Replace a shape in `given["tensor"]` by its number of ranks, and put the shape beside it as `tensor_shape`.

    Anything else is unchanged. A validation error of the shape names `tensor`, which was written.
    """
    if not isinstance(given, Mapping) or not isinstance(given.get("tensor"), Mapping):
        return given
    read = TypeAdapter(dict[str, TensorShape])
    found = read.validate_python({"tensor": given["tensor"]})["tensor"]
    return {**given, "tensor": found.ranks, "tensor_shape": found}


def degree_or_shape(schema: dict[str, Any]) -> None:
    """Change the JSON Schema of a degree in place so that it is a number or a shape."""
    number = {name: schema.pop(name) for name in ("type", "minimum", "maximum")}
    side = {"type": "integer", "minimum": 2, "maximum": _MOST}
    properties = {
        "mode": {"type": "string", "enum": ["2d"]},
        "shape": {"type": "array", "items": side, "minItems": 2, "maxItems": 2},
    }
    a_shape = {
        "type": "object",
        "required": ["mode", "shape"],
        "additionalProperties": False,
        "properties": properties,
    }
    schema["anyOf"] = [number, a_shape]
