from typing import Any

import pytest
from pydantic import ValidationError

from shardyard.strategies.layout import Layout


def test_a_range_is_the_most_replicas_with_the_range_beside() -> None:
    layout = Layout.model_validate({"data": {"min": 1, "max": 4}, "zero": 1})
    assert (layout.data, layout.world_size, str(layout.elastic)) == (4, 4, "1 to 4")
    assert Layout.model_validate(layout.model_dump()) == layout
    smaller = layout.with_(data=2)
    assert (smaller.world_size, smaller.elastic) == (2, layout.elastic)


@pytest.mark.parametrize(
    ("layout", "where", "message"),
    [
        ({"data": {"min": 5, "max": 4}}, ("data", "max"), "max 4 is less than min 5"),
        ({"data": {"min": 0, "max": 4}}, ("data", "min"), "greater than or equal to 1"),
        ({"data": {"max": 4}}, ("data", "min"), "required"),
        ({"data": {"min": 1, "max": 4, "most": 4}}, ("data", "most"), "not permitted"),
        ({"data": 8, "elastic": {"min": 1, "max": 4}}, ("elastic",), "data 8 is not within 1 to 4"),
    ],
)
def test_a_wrong_range_is_refused_where_it_was_written(
    layout: dict[str, Any], where: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        Layout.model_validate(layout)
    (error,) = refused.value.errors()
    assert error["loc"] == where and message in error["msg"]
