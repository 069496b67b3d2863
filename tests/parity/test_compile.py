"""Compiled blocks equal one process that compiles nothing; names and checkpoints stay as they are."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.ranks import train

from .test_layouts import assert_equal

Make = Callable[..., Any]

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="compiling for a CPU needs a C++ compiler"),
]


@pytest.mark.parametrize("layout", [{"data": 2, "zero": 1}, {"tensor": 2}], ids=str)
def test_float64_equals_one_process(layout: Any, root: Path, make_spec: Make, one_process: Make) -> None:
    found = train(make_spec(layout, compile=True), root)
    assert_equal(found, one_process(make_spec(layout)), 1e-10)
