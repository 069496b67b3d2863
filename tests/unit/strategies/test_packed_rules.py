"""What has no proof with packed documents is refused, with the field, the reason and a remedy."""

from typing import Any

import pytest

from shardyard.strategies.layout import Layout, ModelFacts, Refusal
from shardyard.strategies.memory_options import MemoryOptions
from shardyard.strategies.packed_rules import check_packed

FACTS = ModelFacts(4, 4, 2, 64)
GRID = {"mode": "2d", "shape": [2, 2]}

REFUSED: dict[str, tuple[dict[str, Any], ModelFacts, MemoryOptions, str]] = {
    "model.import": ({}, ModelFacts(None, None, None, None), MemoryOptions(), "fp32"),
    "model.family": ({}, ModelFacts(4, 4, 2, 64, 8), MemoryOptions(), "fp32"),
    "layout.tensor": ({"tensor": GRID}, FACTS, MemoryOptions(), "fp32"),
    "layout.parameter_server": ({"data": 2, "parameter_server": {"servers": 1}}, FACTS, MemoryOptions(), "fp32"),
    "layout.schedule": ({"pipeline": 2, "schedule": "2bw"}, FACTS, MemoryOptions(), "fp32"),
    "compile": ({}, FACTS, MemoryOptions(compile=True), "fp32"),
    "precision": ({}, FACTS, MemoryOptions(), "fp8"),
}


@pytest.mark.parametrize("field", REFUSED)
def test_is_refused(field: str) -> None:
    layout, facts, memory_options, compute = REFUSED[field]
    with pytest.raises(Refusal) as refused:
        check_packed(Layout.model_validate(layout), memory_options, facts, compute)
    assert refused.value.field == field
    assert refused.value.remedy.endswith(", or set data.documents to joined.")


def test_every_other_axis_is_taken() -> None:
    layout = Layout.model_validate(
        {"data": 2, "zero": 1, "tensor": 2, "context": 4, "ulysses": 2, "pipeline": 2, "schedule": "zbv"}
    )
    check_packed(layout, MemoryOptions(), FACTS, "bf16")
