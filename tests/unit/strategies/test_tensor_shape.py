"""A shape becomes a degree with the shape beside it, and the two always agree."""

from typing import Any

import pytest
from pydantic import ValidationError

from shardyard.strategies.layout import Layout
from shardyard.strategies.tensor_shape import Division

GRID = {"mode": "2d", "shape": [3, 3]}
DEEP = {"mode": "2.5d", "shape": [3, 3, 2]}


def test_a_shape_becomes_its_number_of_ranks() -> None:
    layout = Layout.model_validate({"tensor": GRID, "data": 2})
    assert (layout.tensor, layout.division, layout.world_size) == (9, Division(3, 3), 18)
    assert str(layout) == "data 2 × tensor 3 × 3"
    assert Layout.model_validate(layout.model_dump(mode="json")) == layout
    assert Layout.model_validate({"tensor": 4}).division == Division()


def test_grids_with_a_depth_share_a_micro_batch_and_hold_the_same_parameters() -> None:
    layout = Layout.model_validate({"tensor": DEEP, "data": 2})
    assert (layout.tensor, layout.division, layout.world_size) == (18, Division(3, 6, 2), 36)
    assert str(layout) == "data 2 × tensor 3 × 3 × 2 (2.5d)"
    assert Layout.model_validate(layout.model_dump(mode="json")) == layout
    assert layout.tensor_shape is not None and layout.tensor_shape.of_side(1) == [1, 1, 1]
    flat = Layout.model_validate({"tensor": {"mode": "2.5d", "shape": [3, 3, 1]}})
    assert flat.division == Layout.model_validate({"tensor": GRID}).division


def test_a_cube_divides_a_micro_batch_over_two_of_its_sides() -> None:
    layout = Layout.model_validate({"tensor": {"mode": "3d", "shape": [3, 3, 3]}, "pipeline": 2})
    assert (layout.tensor, layout.division, layout.world_size) == (27, Division(3, 9), 54)
    assert str(layout) == "tensor 3 × 3 × 3 (3d) × pipeline 2 (1f1b)"
    assert layout.tensor_shape is not None and layout.tensor_shape.of_side(2) == [2, 2, 2]
    assert layout.tensor_shape.of_side(4) == [4, 4, 4]


@pytest.mark.parametrize(
    ("given", "sides"), [(GRID, [2, 3, 32]), (DEEP, [2, 3]), ({"mode": "3d", "shape": [3, 3, 3]}, [2, 3, 10])]
)
def test_other_sides_give_shapes_that_a_layout_may_have(given: dict[str, Any], sides: list[int]) -> None:
    shape = Layout.model_validate({"tensor": given}).tensor_shape
    assert shape is not None
    found = shape.of_sides([1, *sides, 33, 64])
    assert [side for side, *_ in found] == sides
    for numbers in found:
        assert Layout.model_validate({"tensor": {**given, "shape": numbers}}).tensor <= 1024


@pytest.mark.parametrize(
    ("given", "named", "why"),
    [
        ({"tensor": {"mode": "2d", "shape": [2, 3]}}, ("tensor", "shape"), "as many columns as rows"),
        ({"tensor": {"mode": "2d", "shape": [1, 1]}}, ("tensor", "shape"), "from 2 to 32"),
        ({"tensor": {"mode": "2d", "shape": [2, 2, 2]}}, ("tensor", "shape"), "such as [2, 2]"),
        ({"tensor": {"mode": "2d", "shape": [2, 2, 2, 2]}}, ("tensor", "shape"), "at most 3 items"),
        ({"tensor": {"mode": "2.5d", "shape": [2, 2]}}, ("tensor", "shape"), "[q, q, d]"),
        ({"tensor": {"mode": "2.5d", "shape": [2, 2, 3]}}, ("tensor", "shape"), "d from 1 to q"),
        ({"tensor": {"mode": "2.5d", "shape": [2, 3, 2]}}, ("tensor", "shape"), "[q, q, d]"),
        ({"tensor": {"mode": "3d", "shape": [2, 2, 1]}}, ("tensor", "shape"), "three equal sides"),
        ({"tensor": {"mode": "3d", "shape": [11, 11, 11]}}, ("tensor",), "less than or equal to 1024"),
        ({"tensor": {"mode": "4d", "shape": [2, 2]}}, ("tensor", "mode"), "2.5d"),
        ({"tensor": 8, "tensor_shape": GRID}, ("tensor_shape",), "a grid of 3 × 3 has 9 ranks, and tensor is 8"),
    ],
)
def test_what_is_no_shape_is_refused_where_it_was_written(
    given: dict[str, Any], named: tuple[str, ...], why: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        Layout.model_validate(given)
    (error,) = caught.value.errors()
    assert error["loc"] == named
    assert why in error["msg"]


def test_the_schema_offers_both() -> None:
    schema = Layout.model_json_schema()["properties"]["tensor"]
    number, shape = schema["anyOf"]
    assert number == {"type": "integer", "minimum": 1, "maximum": 1024}
    assert shape["properties"]["mode"] == {"type": "string", "enum": ["2d", "2.5d", "3d"]}
