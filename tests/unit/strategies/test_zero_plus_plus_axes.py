"""Axes exist for the options that need them; each divides the replicas over which ZeRO shards."""

from typing import Any

import pytest

from shardyard.strategies.layout import Layout
from shardyard.strategies.zero_plus_plus_axes import zero_plus_plus_axes


@pytest.mark.parametrize(
    ("layout", "given", "axes"),
    [
        ({"data": 8}, {"weights": "int8"}, {}),
        ({"data": 8}, {"gradients": "int8"}, {}),
        ({"data": 8}, {"secondary": 4}, {"secondary": (4, 1)}),
        (
            {"data": 8},
            {"secondary": 4, "gradients": "int4"},
            {"secondary": (4, 1), "node": (4, 1), "nodes": (2, 4)},
        ),
        ({"data": 8, "context": 2}, {"gradients": "int8", "node": 2}, {"node": (2, 1), "nodes": (8, 2)}),
        ({"data": 8, "shard": 4}, {"gradients": "int8", "node": 2}, {"node": (2, 1), "nodes": (2, 2)}),
    ],
    ids=str,
)
def test_each_group_has_an_axis(layout: dict[str, Any], given: dict[str, Any], axes: dict[str, Any]) -> None:
    assert zero_plus_plus_axes(Layout.model_validate({**layout, "zero": 3, "zero_plus_plus": given})) == axes


def test_without_zero_plus_plus_there_is_none() -> None:
    assert zero_plus_plus_axes(Layout(data=8, zero=3)) == {}
