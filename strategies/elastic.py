"""Elastic jobs: the numbers between which the service may change a job's degree of data parallelism, or its ranks.

A range such as `data: {min: 1, max: 4}` becomes `data: 4` with the range beside it: the code that builds and trains never sees a range.
"""

from typing import Any, Final

from pydantic import Field, ValidationInfo, field_validator

from .number_object import NumberObject, number_or

#: More replicas than that are taken for a typing error.
MOST = 65_536


class Range(NumberObject):
    """The smallest and the largest number of something. It stands for the largest."""

    min: int
    max: int

    @field_validator("max")
    @classmethod
    def _in_order(cls, most: int, info: ValidationInfo) -> int:
        if most < info.data.get("min", 1):
            raise ValueError(f"max {most} is less than min {info.data['min']}")
        return most

    @property
    def number(self) -> int:
        return self.max

    @property
    def beside(self) -> dict[str, Any]:
        return {"elastic": self}

    def __contains__(self, number: int) -> bool:
        return self.min <= number <= self.max

    def __str__(self) -> str:
        return f"{self.min} to {self.max}"


class DataRange(Range):
    """The smallest and the largest number of replicas with which a job may train."""

    min: int = Field(ge=1, le=MOST, description="The smallest number of replicas with which the job continues.")
    max: int = Field(ge=1, le=MOST, description="The number of replicas that the job uses if there are enough devices.")


#: The JSON Schema of a number that may be a range.
number_or_range: Final = number_or({"min": None, "max": None}, ("min", "max"))
