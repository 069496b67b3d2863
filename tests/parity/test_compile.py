"""Compiled blocks equal one process that compiles nothing; names and checkpoints stay as they are."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.models import GPT2, MIXTURE
from harness.ranks import train, train_rank

from shardyard.strategies.memory_options import SPLIT_BACKWARD
from shardyard.workers.spec import Run

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


#: Notes each call that makes a library. Each process lets the compiler preprocess a header, to see whether it has changed.
COUNTS = """#!/bin/sh
case " $* " in *" -shared "*) echo made >> '{root}/calls';; esac
exec g++ "$@"
"""


def counted(rank: int, world: int, port: int, orders: str) -> Any:
    """`train_rank` with a compiler that counts, and a folder for what it makes."""
    root = Run.model_validate_json(orders).cache.parent
    os.environ |= {"CXX": str(root / "counting-g++"), "TORCHINDUCTOR_CACHE_DIR": str(root / "compiled")}
    return train_rank(rank, world, port, orders)


@pytest.mark.timeout(900)
def test_a_trainer_after_another_on_its_node_compiles_nothing(root: Path, make_spec: Make) -> None:
    """As after a repair: `docs/design/warm-start.md`."""
    compiler, calls = root / "counting-g++", root / "calls"
    compiler.write_text(COUNTS.format(root=root))
    compiler.chmod(0o700)
    first = train(make_spec({}, compile=True), root, "first", work=counted, patience_s=600)
    made = len(calls.read_text().splitlines())
    assert made > 0
    then = train(make_spec({}, compile=True), root, "second", work=counted, patience_s=600)
    assert then["losses"] == first["losses"]
    assert len(calls.read_text().splitlines()) == made
