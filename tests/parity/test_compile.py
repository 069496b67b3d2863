"""Compiled blocks equal one process that compiles nothing; names and checkpoints stay as they are."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.models import GPT2, MIXTURE
from harness.ranks import train

from shardyard.strategies.memory_options import SPLIT_BACKWARD

from .test_layouts import assert_equal

Make = Callable[..., Any]

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="compiling for a CPU needs a C++ compiler"),
]


@pytest.mark.parametrize("layout", [{"data": 2, "zero": 1}, {"tensor": 2}], ids=str)
def test_float64_equals_one_process(layout: Any, root: Path, make_spec: Make, one_process: Make) -> None:
    found = train(make_spec(layout, compile=True), root)
    assert_equal(found, one_process(make_spec(layout)), 1e-10)


#: Layouts whose schedules split the backward pass, and what else changes.
SPLIT = {
    **{schedule: ({"pipeline": 2, "schedule": schedule}, {}) for schedule in SPLIT_BACKWARD},
    "zb-h1-full": ({"pipeline": 2, "schedule": "zb-h1"}, {"recompute": "full"}),
    "zb-h1-data2-zero3": ({"pipeline": 2, "schedule": "zb-h1", "data": 2, "zero": 3}, {}),
    "zb-h1-tensor2": ({"pipeline": 2, "schedule": "zb-h1", "tensor": 2}, {}),
    "zb-h1-context2": ({"pipeline": 2, "schedule": "zb-h1", "context": 2}, {}),
    "zb-h1-data2-expert2": ({"pipeline": 2, "schedule": "zb-h1", "data": 2, "expert": 2}, {"model": MIXTURE}),
    "zbv-gpt2": ({"pipeline": 2, "schedule": "zbv"}, {"model": GPT2}),
}


@pytest.mark.timeout(900)  # each rank runs the C++ compiler
@pytest.mark.parametrize("name", SPLIT)
def test_compiled_regions_equal_one_process(name: str, root: Path, make_spec: Make, one_process: Make) -> None:
    layout, changes = SPLIT[name]
    spec = make_spec(layout, compile=True, **changes)
    assert_equal(train(spec, root, patience_s=600), one_process(make_spec({}, **changes)), 1e-10)
