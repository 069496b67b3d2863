"""A pipeline's shape becomes its number of stages with the split beside it."""

from typing import Any

import pytest
from pydantic import ValidationError

from shardyard.strategies.layout import Layout, profiled


def test_a_shape_becomes_its_number_of_stages() -> None:
    layout = Layout.model_validate({"pipeline": {"stages": 4, "split": "profile"}, "data": 2})
    assert (layout.pipeline, layout.pipeline_split, profiled(layout), layout.world_size) == (4, "profile", True, 8)
    assert str(layout) == "data 2 × pipeline 4 (1f1b, split by profile)"
    assert Layout.model_validate(layout.model_dump(mode="json")) == layout
    assert not profiled(layout.with_(pipeline=1))


def test_blocks_are_beside_the_number_too_and_read_from_json() -> None:
    layout = Layout.model_validate({"pipeline": {"stages": 2, "blocks": [1, 3]}}, strict=True)
    assert (layout.pipeline, layout.pipeline_blocks, profiled(layout)) == (2, (1, 3), False)
    assert str(layout) == "pipeline 2 (1f1b, blocks 1 + 3)"
    assert Layout.model_validate(layout.model_dump(mode="json"), strict=True) == layout


def test_flops_decide_unless_a_profile_does() -> None:
    for given in (4, {"stages": 4}, {"stages": 4, "split": "flops"}):
        assert Layout.model_validate({"pipeline": given}) == Layout(pipeline=4)
        assert not profiled(Layout.model_validate({"pipeline": given}))


@pytest.mark.parametrize(
    ("given", "named", "why"),
    [
        ({"stages": 0}, ("pipeline", "stages"), "greater than or equal to 1"),
        ({"stages": 2, "split": "times"}, ("pipeline", "split"), "'flops' or 'profile'"),
        ({"split": "profile"}, ("pipeline", "stages"), "required"),
        ({"stages": 2, "blocks": [1, "3"]}, ("pipeline", "blocks", 1), "valid integer"),
        ({"stages": 2, "blocks": [1, 3], "split": "profile"}, ("pipeline",), "blocks say already"),
        ({"stages": 2, "balance": [1, 3]}, ("pipeline", "balance"), "not permitted"),
        ({"stages": 2, "replicas": [3, 1]}, ("pipeline",), "same number of replicas, which is layout.data"),
    ],
)
def test_what_is_no_shape_is_refused_where_it_was_written(given: Any, named: tuple[str, ...], why: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Layout.model_validate({"pipeline": given})
    (error,) = caught.value.errors()
    assert error["loc"] == named
    assert why in error["msg"]


def test_the_schema_offers_both() -> None:
    number, shape = Layout.model_json_schema()["properties"]["pipeline"]["anyOf"]
    assert number == {"type": "integer", "minimum": 1, "maximum": 1024}
    assert shape["required"] == ["stages"] and shape["properties"]["stages"] == number
    assert shape["properties"].keys() == {"stages", "split", "blocks"}
