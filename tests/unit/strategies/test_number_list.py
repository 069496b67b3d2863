"""A list of JSON is a tuple, also where validation is strict; what is in it is not converted."""

from typing import Annotated

import pytest
from pydantic import TypeAdapter, ValidationError

from shardyard.strategies.number_list import FromList

NUMBERS = TypeAdapter(Annotated[tuple[int, ...], FromList])


@pytest.mark.parametrize("given", [[1, 2], (1, 2)])
def test_a_list_is_a_tuple(given: object) -> None:
    assert NUMBERS.validate_python(given, strict=True) == (1, 2)


@pytest.mark.parametrize("given", [[1, "2"], [1.0, 2], "12", {1, 2}])
def test_anything_else_is_refused(given: object) -> None:
    with pytest.raises(ValidationError):
        NUMBERS.validate_python(given, strict=True)
