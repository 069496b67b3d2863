"""Elastic layouts: the degrees of data parallelism between which a job may train. The engine sees only one degree, that of the attempt.

A layout with `data: {min: 1, max: 4}` becomes `data: 4` with the range beside it: the code that builds and trains never sees a range.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

#: More replicas than that are taken for a typing error.
MOST = 65_536


class DataRange(BaseModel):
    """The smallest and the largest number of replicas with which a job may train."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    min: int = Field(ge=1, le=MOST, description="The smallest number of replicas with which the job continues.")
    max: int = Field(ge=1, le=MOST, description="The number of replicas that the job uses if there are enough devices.")

    @field_validator("max")
    @classmethod
    def _in_order(cls, most: int, info: ValidationInfo) -> int:
        if most < info.data.get("min", 1):
            raise ValueError(f"max {most} is less than min {info.data['min']}")
        return most

    def __contains__(self, degree: int) -> bool:
        return self.min <= degree <= self.max

    def __str__(self) -> str:
        return f"{self.min} to {self.max}"


class _Written(BaseModel):
    """Makes a validation error of a range name `data`, the field that was written."""

    data: DataRange


def beside_the_degree(layout: Any) -> Any:
    """Replace a range in the layout's `data` by its largest degree, and put the range beside it as `elastic`.

    Other layouts are unchanged.
    """
    if not isinstance(layout, Mapping) or not isinstance(layout.get("data"), Mapping):
        return layout
    given = _Written(data=layout["data"]).data
    return {**layout, "data": given.max, "elastic": given}


def schema_of_data(schema: dict[str, Any]) -> None:
    """Change the JSON Schema in place so that `data` is a number or a range."""
    number = {name: schema.pop(name) for name in ("type", "minimum", "maximum")}
    ends = {name: dict(number) for name in ("min", "max")}
    a_range = {"type": "object", "required": ["min", "max"], "additionalProperties": False, "properties": ends}
    schema["anyOf"] = [number, a_range]
