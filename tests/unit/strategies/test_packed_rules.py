"""What cannot work with packed documents is refused, with the field, the reason and a remedy."""

from typing import Any

import pytest

from shardyard.strategies.layout import Layout, Refusal
from shardyard.strategies.packed_rules import check_packed


@pytest.mark.parametrize("options", [{"mode": "async"}, {"mode": "stale", "bound": 2}], ids=str)
def test_workers_that_do_not_wait_for_each_other_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(Refusal) as refused:
        check_packed(Layout.model_validate({"data": 2, "parameter_server": {"servers": 1, **options}}))
    assert refused.value.field == "layout.parameter_server"
    assert refused.value.remedy.endswith(", or set data.documents to joined.")


@pytest.mark.parametrize(
    "layout",
    [
        {"data": 2, "zero": 1, "tensor": 2, "context": 4, "ulysses": 2, "pipeline": 2, "schedule": "zbv"},
        {"tensor": {"mode": "2d", "shape": [2, 2]}},
        {"tensor": {"mode": "2.5d", "shape": [2, 2, 2]}, "data": 2, "zero": 1},
        {"tensor": {"mode": "3d", "shape": [2, 2, 2]}},
        {"data": 2, "expert": 2, "zero": 3},
        {"pipeline": 2, "schedule": "2bw"},
        {"pipeline": 2, "schedule": "pipedream"},
        {"data": 2, "parameter_server": {"servers": 1}},
    ],
    ids=str,
)
def test_every_other_axis_is_taken(layout: dict[str, Any]) -> None:
    check_packed(Layout.model_validate(layout))
