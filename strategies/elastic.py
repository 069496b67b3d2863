"""Elastic layouts: between which degrees of data parallelism a job may train. The engine knows one degree, that of the attempt.

A layout written as `data: {min: 1, max: 4}` is `data: 4` with the range beside it: what builds and trains never meets a range.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

#: More replicas than that are a slip of the pen.
MOST = 65_536


class DataRange(BaseModel):
    """The fewest and the most replicas with which a job may train."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    min: int = Field(ge=1, le=MOST, description="The fewest replicas with which the job goes on.")
    max: int = Field(ge=1, le=MOST, description="The replicas that it takes when there are devices for them.")

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
    """So that what is wrong in a range is told of `data`, where it was written."""

    data: DataRange


def beside_the_degree(layout: Any) -> Any:
    """A layout whose `data` may be a range, as one with a degree, the largest, and the range beside it."""
    if not isinstance(layout, Mapping) or not isinstance(layout.get("data"), Mapping):
        return layout
    given = _Written(data=layout["data"]).data
    return {**layout, "data": given.max, "elastic": given}


def schema_of_data(schema: dict[str, Any]) -> None:
    """In the JSON Schema, `data` is a number or a range."""
    number = {name: schema.pop(name) for name in ("type", "minimum", "maximum")}
    ends = {name: dict(number) for name in ("min", "max")}
    a_range = {"type": "object", "required": ["min", "max"], "additionalProperties": False, "properties": ends}
    schema["anyOf"] = [number, a_range]
