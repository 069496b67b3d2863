"""Elastic jobs: the numbers between which the service may change a job's degree of data parallelism, or its ranks.

A range such as `data: {min: 1, max: 4}` becomes `data: 4` with the range beside it: the code that builds and trains never sees a range.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationInfo, field_validator

#: More replicas than that are taken for a typing error.
MOST = 65_536


class Range(BaseModel):
    """The smallest and the largest number of something."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    min: int
    max: int

    @field_validator("max")
    @classmethod
    def _in_order(cls, most: int, info: ValidationInfo) -> int:
        if most < info.data.get("min", 1):
            raise ValueError(f"max {most} is less than min {info.data['min']}")
        return most

    def __contains__(self, number: int) -> bool:
        return self.min <= number <= self.max

    def __str__(self) -> str:
        return f"{self.min} to {self.max}"


class DataRange(Range):
    """The smallest and the largest number of replicas with which a job may train."""

    min: int = Field(ge=1, le=MOST, description="The smallest number of replicas with which the job continues.")
    max: int = Field(ge=1, le=MOST, description="The number of replicas that the job uses if there are enough devices.")


def beside_the_number(given: Any, field: str, kind: type[Range]) -> Any:
    """Replace a range in `given[field]` by its largest number, and put the range beside it as `elastic`.

    Anything else is unchanged. A validation error of the range names `field`, which was written.
    """
    if not isinstance(given, Mapping) or not isinstance(given.get(field), Mapping):
        return given
    read: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, kind])  # type: ignore[valid-type]
    found = read.validate_python({field: given[field]}, strict=True)[field]
    return {**given, field: found.max, "elastic": found}


def number_or_range(schema: dict[str, Any]) -> None:
    """Change the JSON Schema of a number in place so that it is a number or a range."""
    number = {name: schema.pop(name) for name in ("type", "minimum", "maximum")}
    ends = {name: dict(number) for name in ("min", "max")}
    a_range = {"type": "object", "required": ["min", "max"], "additionalProperties": False, "properties": ends}
    schema["anyOf"] = [number, a_range]
