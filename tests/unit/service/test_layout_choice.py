"""What is shown of a layout that the advisor chose, and of others."""

from typing import Any

import pytest

from shardyard.service.layout_choice import layout_choice, with_present_layout
from shardyard.service.spec import JobSpec


def stored(step_s: float | None, **train: Any) -> dict[str, Any]:
    auto = {"world": None, "devices": "8 × H100", "step_s": step_s}
    return {"train": {"layout": {"data": 8, "auto": auto}, **train}}


@pytest.mark.parametrize(
    ("spec", "shown"),
    [
        (stored(0.2304), "chosen by the layout advisor for 8 × H100; predicted step time 230 ms"),
        (
            stored(12.345, recompute={"mode": "full"}, offload={"optimizer": 1.0}),
            "chosen by the layout advisor for 8 × H100, with recompute full and optimizer state on the host; "
            "predicted step time 12.3 s",
        ),
        (stored(1.0, recompute={"mode": "none"}, offload={"optimizer": 0.0}), None),
        (stored(None), ""),
        ({"train": {"layout": {"data": 8, "auto": None}}}, ""),
        ({"train": {"layout": {"data": 8}}}, ""),
        ({"train": {"steps": 1}}, ""),
        ({"command": ["true"], "ranks": 2}, ""),
    ],
)
def test_only_a_layout_that_was_chosen_has_a_choice(spec: dict[str, Any], shown: str | None) -> None:
    """`shown` empty: none; None: without options."""
    expected = "chosen by the layout advisor for 8 × H100; predicted step time 1 s" if shown is None else shown or None
    assert layout_choice(spec) == expected


@pytest.mark.parametrize(
    ("written", "copied"),
    [
        ("auto", {"data": 8, "zero": 1}),
        ({"auto": {"world": 8}}, {"auto": None, "data": 8, "zero": 1}),
        ({"auto": {}, "zero": 1, "tensor": 1}, {"auto": None, "data": 8, "zero": 1, "tensor": 1}),
    ],
)
def test_a_copied_layout_is_no_longer_the_advisors_choice(written: Any, copied: dict[str, Any]) -> None:
    """`auto` stays as a key, so that the text around it can stay."""
    auto = {"world": 8, "devices": "8 × H100", "step_s": 0.5}
    train = {"steps": 1, "global_batch": 8, "layout": {"data": 8, "zero": 1, "auto": auto}, "recompute": "full"}
    spec = JobSpec.model_validate({"name": "x", "train": train})
    text = {"name": "x", "train": {"steps": 1, "global_batch": 8, "layout": written}}
    found = with_present_layout(text, spec)
    assert found["train"] == {"steps": 1, "global_batch": 8, "layout": copied, "recompute": {"mode": "full"}}
    assert layout_choice(found) is None
