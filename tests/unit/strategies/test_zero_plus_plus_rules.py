"""What does not go with ZeRO++ is refused, with the field and a remedy that works."""

from typing import Any

import pytest

from shardyard.strategies.layout import Refusal
from shardyard.workers.spec import TrainSpec

ALL = {"weights": "int8", "secondary": 2, "gradients": "int4"}


def _spec(layout: dict[str, Any], given: dict[str, Any] | None = None, **changes: Any) -> TrainSpec:
    whole = {"data": 4, "zero": 3, **layout}
    if given is not None:
        whole["zero_plus_plus"] = given
    return TrainSpec.model_validate({"steps": 1, "global_batch": 16, "layout": whole, **changes})


@pytest.mark.parametrize(
    ("layout", "given", "changes", "field", "remedy", "corrected"),
    [
        ({"zero": 0}, ALL, {}, "layout.zero", "layout.zero to 3", ({}, ALL, {})),
        ({"zero": 1}, {"weights": "int8"}, {}, "layout.zero_plus_plus.weights", "layout.zero to 3", ({}, ALL, {})),
        ({"zero": 2}, ALL, {}, "layout.zero_plus_plus.weights", "leave weights out", ({"zero": 2}, {"gradients": "int4"}, {})),
        ({"zero": 2}, {"secondary": 2}, {}, "layout.zero_plus_plus.secondary", "leave secondary out", ({"zero": 2}, None, {})),
        ({}, {"secondary": 3}, {}, "layout.zero_plus_plus.secondary", "Use one of [2]", ({}, {"secondary": 2}, {})),
        ({}, {"secondary": 4}, {}, "layout.zero_plus_plus.secondary", "Use one of [2]", ({}, {"secondary": 2}, {})),
        (
            {"shard": 2},
            {"secondary": 2},
            {},
            "layout.zero_plus_plus.secondary",
            "Leave secondary out",
            ({"shard": 2}, {"weights": "int8"}, {}),
        ),
        (
            {"data": 8},
            {"gradients": "int4", "node": 3},
            {},
            "layout.zero_plus_plus.node",
            "Use one of [2, 4]",
            ({"data": 8}, {"gradients": "int4", "node": 4}, {}),
        ),
        (
            {"pipeline": 2},
            ALL,
            {},
            "layout.zero_plus_plus.secondary",
            "Leave secondary out",
            ({"pipeline": 2}, {"weights": "int8", "gradients": "int4"}, {}),
        ),
        (
            {"zero": 1, "tensor": {"mode": "2d", "shape": [2, 2]}},
            {"gradients": "int8"},
            {"model": {"kv_heads": 4}},
            "layout.tensor",
            "layout.tensor to a number",
            ({"zero": 1, "tensor": 4}, {"gradients": "int8"}, {"model": {"kv_heads": 4}}),
        ),
        ({}, ALL, {"offload": {"parameters": True}}, "offload.parameters", "to false", ({}, ALL, {})),
        ({}, ALL, {"model": {"family": "moe"}}, "model.family", "without experts", ({}, ALL, {})),
        ({}, ALL, {"precision": "fp8"}, "precision", "to bf16", ({}, ALL, {"precision": "bf16"})),
        ({}, ALL, {"precision": "fp8"}, "precision", "weights out", ({}, {"gradients": "int8"}, {"precision": "fp8"})),
    ],
    ids=str,
)  # fmt: skip
def test_is_refused_and_the_remedy_is_accepted(
    layout: Any, given: Any, changes: Any, field: str, remedy: str, corrected: Any
) -> None:
    with pytest.raises(Refusal) as refused:
        _spec(layout, given, **changes).check()
    assert refused.value.field == field
    assert remedy in refused.value.remedy
    other, smaller, more = corrected
    _spec(other, smaller, **more).check()


@pytest.mark.parametrize(
    ("layout", "given", "changes"),
    [
        (layout, given, changes)
        for layout, given in (
            ({"tensor": 2, "context": 2}, ALL),
            ({"data": 8, "shard": 4}, ALL),
            ({"zero": 1, "pipeline": 2, "schedule": "zbv"}, {"gradients": "int4", "node": 2}),
        )
        for changes in ({"compile": True}, {"recompute": "selective"}, {"offload": {"activations": True}})
    ],
    ids=str,
)
def test_other_axes_and_options_are_taken(layout: Any, given: Any, changes: Any) -> None:
    _spec(layout, given, **changes).check()
