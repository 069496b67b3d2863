"""An object in the place of a number becomes the number, with the rest beside it; its errors name the field."""

from typing import Any

import pytest
from pydantic import ValidationError

from shardyard.strategies.number_object import NumberObject, beside_the_number, number_or


class Pair(NumberObject):
    first: int
    second: int = 1

    @property
    def number(self) -> int:
        return self.first * self.second

    @property
    def beside(self) -> dict[str, Any]:
        return {"second": self.second}


def test_the_number_is_in_its_place_and_the_rest_beside_it() -> None:
    given = {"size": {"first": 2, "second": 3}, "name": "a"}
    assert beside_the_number(given, "size", Pair) == {"size": 6, "second": 3, "name": "a"}
    for other in (7, None, {"size": 4}, {"name": "a"}):
        assert beside_the_number(other, "size", Pair) == other


@pytest.mark.parametrize("wrong", [{"first": "2"}, {"second": 2}, {"first": 2, "third": 3}])
def test_an_error_names_the_field(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as refused:
        beside_the_number({"size": wrong}, "size", Pair)
    assert refused.value.errors()[0]["loc"][0] == "size"


def test_the_schema_has_both() -> None:
    schema: dict[str, Any] = {"type": "integer", "minimum": 1, "maximum": 9, "title": "Size"}
    number_or({"first": None, "second": {"const": 1}}, ("first",))(schema)
    number, pair = schema["anyOf"]
    assert number == {"type": "integer", "minimum": 1, "maximum": 9} == pair["properties"]["first"]
    assert pair["properties"]["second"] == {"const": 1} and pair["required"] == ["first"] and schema["title"] == "Size"
