"""What a dry run does not cover has a reason and a remedy; everything else has none."""

from typing import Any

import pytest

from shardyard.workers.dry_run.unsupported import unsupported
from shardyard.workers.spec import TrainSpec

OWN = {"import": "a:b"}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"precision": "fp8"}, "precision"),
        ({"compile": True}, "compile"),
        ({"model": OWN, "data": {"source": "a:c"}}, "data.source"),
        ({"model": OWN, "layout": {"pipeline": 2}}, "layout.pipeline"),
        ({"layout": {"pipeline": 2}}, None),
        ({"model": OWN, "compile": "auto"}, None),
        ({"precision": "bf16"}, None),
    ],
    ids=str,
)
def test_it_is_named_with_its_field(change: dict[str, Any], field: str | None) -> None:
    found = unsupported(TrainSpec.model_validate({"steps": 1, "global_batch": 4, **change}))
    assert (found and found.field) == field
    assert found is None or found.remedy
