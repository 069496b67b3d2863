"""ZeRO++'s options as a spec gives them: independent, read back as they were written, refused where they mean nothing."""

from typing import Any

import pytest
from pydantic import ValidationError

from shardyard.strategies.layout import Layout
from shardyard.strategies.zero_plus_plus import ZeroPlusPlus
from shardyard.strategies.zero_plus_plus_axes import zero_plus_plus_axes


@pytest.mark.parametrize(
    ("given", "node"),
    [
        ({"weights": "int8"}, None),
        ({"secondary": 4}, None),
        ({"gradients": "int4"}, None),
        ({"gradients": "int8", "node": 2}, 2),
        ({"secondary": 4, "gradients": "int4"}, 4),
        ({"secondary": 4, "gradients": "int4", "node": 2, "block": 64}, 2),
    ],
    ids=str,
)
def test_each_option_stands_alone(given: dict[str, Any], node: int | None) -> None:
    layout = Layout.model_validate({"data": 8, "zero": 3, "zero_plus_plus": given})
    assert layout.zero_plus_plus is not None and layout.zero_plus_plus.gradient_node == node
    assert Layout.model_validate(layout.model_dump(mode="json"), strict=True) == layout
    assert layout.with_(data=16).zero_plus_plus == layout.zero_plus_plus


@pytest.mark.parametrize(
    ("given", "named", "why"),
    [
        ({}, (), "set weights, secondary or gradients"),
        ({"block": 64}, (), "set weights, secondary or gradients"),
        ({"weights": "int8", "node": 2}, (), "only quantised gradients are summed by node"),
        ({"weights": "int4"}, ("weights",), "'int8'"),
        ({"gradients": "fp8"}, ("gradients",), "'int8' or 'int4'"),
        ({"secondary": 1}, ("secondary",), "greater than or equal to 2"),
        ({"gradients": "int4", "node": 1}, ("node",), "greater than or equal to 2"),
        ({"weights": "int8", "block": 30}, ("block",), "greater than or equal to 32"),
        ({"weights": "int8", "block": 33}, ("block",), "multiple of 2"),
        ({"weights": "int8", "bits": 8}, ("bits",), "not permitted"),
    ],
    ids=str,
)
def test_what_means_nothing_is_refused_where_it_was_written(
    given: dict[str, Any], named: tuple[str, ...], why: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        Layout.model_validate({"data": 8, "zero": 3, "zero_plus_plus": given})
    (error,) = caught.value.errors()
    assert error["loc"] == ("zero_plus_plus", *named)
    assert why in error["msg"]


def test_its_words_name_what_is_given() -> None:
    assert str(ZeroPlusPlus(weights="int8", secondary=4)) == "int8 weights, secondary 4"
    assert str(ZeroPlusPlus(gradients="int4", node=2)) == "int4 gradients by nodes of 2"


def test_its_groups_divide_the_replicas_that_shard() -> None:
    given = {"secondary": 4, "gradients": "int8", "node": 2}
    layout = Layout.model_validate({"data": 8, "context": 2, "zero": 3, "zero_plus_plus": given})
    assert zero_plus_plus_axes(layout) == {"secondary": (4, 1), "node": (2, 1), "nodes": (8, 2)}
    assert zero_plus_plus_axes(layout.with_(shard=8))["nodes"] == (4, 2)
    assert zero_plus_plus_axes(Layout(data=8, zero=3)) == {}
