from typing import Any

import pytest

from shardyard.strategies.layout import Layout
from shardyard.strategies.layout_text import format_layout


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "data 1"),
        ({"data": 4, "zero": 3, "shard": 2}, "data 4 (ZeRO-3 in groups of 2)"),
        ({"data": 4, "zero": 3, "zero_plus_plus": {"weights": "int8"}}, "data 4 (ZeRO-3; int8 weights)"),
        (
            {"data": 8, "zero": 3, "shard": 4, "zero_plus_plus": {"secondary": 2, "gradients": "int4"}},
            "data 8 (ZeRO-3 in groups of 4; secondary 2, int4 gradients by nodes of 2)",
        ),
        ({"tensor": 2, "sequence": False}, "tensor 2 (no sequence parallel)"),
        ({"tensor": {"mode": "3d", "shape": [2, 2, 2]}}, "tensor 2 × 2 × 2 (3d)"),
        ({"context": 4, "ulysses": 2, "context_inner": "ring"}, "context 4 (Ulysses 2 × ring 2)"),
        ({"context": 4, "ring_window": 2}, "context 4 (ring 4 in windows of 2)"),
        ({"pipeline": {"stages": 2, "blocks": [1, 3]}}, "pipeline 2 (1f1b, blocks 1 + 3)"),
        ({"pipeline": {"stages": 2, "split": "profile"}}, "pipeline 2 (1f1b, split by profile)"),
        (
            {"pipeline": 2, "schedule": "pipedream", "vertical_sync": True},
            "pipeline 2 (pipedream, vertical sync)",
        ),
        ({"data": 2, "expert": 2}, "data 2, experts over 2 replicas"),
        ({"data": 2, "parameter_server": {"servers": 1}}, "data 2, 1 parameter server"),
        (
            {"data": 2, "parameter_server": {"servers": 2, "mode": "stale", "bound": 3}},
            "data 2, 2 parameter servers (stale, bound 3)",
        ),
        ({"data": 2, "parameter_server": {"servers": 1, "mode": "async"}}, "data 2, 1 parameter server (async)"),
    ],
)
def test_each_part_has_its_words(given: dict[str, Any], words: str) -> None:
    layout = Layout.model_validate(given)
    assert format_layout(layout) == str(layout) == words
