"""Bytes per step by formula: an axis without a formula has a reason instead of a number."""

from typing import Any

import pytest

from shardyard.strategies.cost.communication import traffic
from shardyard.strategies.cost.estimate import Setting

from .test_estimate import setting


@pytest.mark.parametrize(
    ("layout", "train", "word"),
    [
        ({"tensor": 2}, {"model": {"family": "gpt2", "preset": "nano"}}, "biases"),
        ({"pipeline": 2}, {"model": {"tied": True}}, "tied"),
    ],
    ids=str,
)
def test_what_is_not_known_has_its_reason_instead_of_a_number(
    layout: dict[str, Any], train: dict[str, Any], word: str
) -> None:
    found = setting(layout, **train)
    assert isinstance(found, Setting)
    said = traffic(found)
    (axis,) = layout
    assert word in said.unknown[axis]
    assert not [flow for flow in said.moved if flow[0] == axis]
