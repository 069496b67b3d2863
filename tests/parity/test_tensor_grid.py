"""Tensor parallelism on a grid, on several and on a cube equals one process: losses, norms, parameters, validation, whatever else."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.layouts import CUBE, DEEP, GRID
from harness.models import GPT2, LLAMA
from harness.ranks import train

from .test_layouts import assert_equal, evaluations

Make = Callable[..., Any]

ON_GRID = {"tensor": GRID}
#: Two blocks show what one passes to the next.
SHALLOW = {**GPT2, "layers": 2, "tied": True}


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "gpt2": ({"micro_batch": 4}, {"model": SHALLOW}),
    "llama-data2-zero1": ({"data": 2, "zero": 1}, {"model": LLAMA}),
    "llama-data2-zero2": ({"data": 2, "zero": 2, "micro_batch": 4}, {"model": LLAMA, "loss": {"label_smoothing": 0.1}}),
    "gpt2-data2-recompute": ({"data": 2}, {"model": GPT2, "recompute": "full"}),
    "llama-1f1b": ({"pipeline": 2, "micro_batch": 4}, {"model": LLAMA}),
    "gpt2-tied-zbv": ({"pipeline": 2, "schedule": "zbv", "micro_batch": 4}, {"model": {**GPT2, "tied": True}}),
    "llama-interleaved-zb": ({"pipeline": 2, "schedule": "interleaved-zb", "micro_batch": 4}, {"model": LLAMA}),
    "llama-zb-h1": ({"pipeline": 2, "schedule": "zb-h1", "micro_batch": 4}, {"model": LLAMA}),
    "llama-dualpipev": ({"pipeline": 2, "schedule": "dualpipev", "micro_batch": 4}, {"model": LLAMA}),
    "gpt2-deep": ({"tensor": DEEP, "micro_batch": 8}, {"model": SHALLOW}),
    "llama-deep-zero1": ({"tensor": DEEP, "zero": 1}, {"model": LLAMA, "recompute": "full"}),
    "llama-deep-zero2": ({"tensor": DEEP, "zero": 2, "micro_batch": 4}, {"model": LLAMA}),
    "llama-deep-data2-zero1": ({"tensor": DEEP, "data": 2, "zero": 1}, {"model": LLAMA}),
    "gpt2-deep-1f1b": ({"tensor": DEEP, "pipeline": 2, "micro_batch": 4}, {"model": GPT2}),
    "gpt2-cube": ({"tensor": CUBE, "micro_batch": 8}, {"model": SHALLOW}),
    "llama-cube-recompute": ({"tensor": CUBE}, {"model": LLAMA, "recompute": "full", "loss": {"label_smoothing": 0.1}}),
    "llama-cube-data2-zero1": ({"tensor": CUBE, "data": 2, "zero": 1}, {"model": LLAMA}),
    "gpt2-cube-1f1b": ({"tensor": CUBE, "pipeline": 2, "micro_batch": 4}, {"model": GPT2}),
    "gpt2-cube-tied-zbv": (
        {"tensor": CUBE, "pipeline": 2, "schedule": "zbv", "micro_batch": 4},
        {"model": {**GPT2, "tied": True}},
    ),
    "llama-cube-offload": ({"tensor": CUBE}, {"model": LLAMA, "offload": {"optimizer": 0.5, "activations": True}}),
    "llama-three-by-three": (
        {"tensor": {"mode": "2d", "shape": [3, 3]}},
        {"model": {**LLAMA, "dim": 48, "heads": 6, "kv_heads": 3, "hidden": 96, "vocab": 257}, "global_batch": 12},
    ),
    "llama-flat": ({"tensor": {"mode": "2.5d", "shape": [2, 2, 1]}}, {"model": LLAMA}),
    "llama-offload": ({}, {"model": LLAMA, "offload": {"optimizer": 0.5, "activations": True}}),
}


@pytest.mark.parametrize(("layout", "changes"), CASES.values(), ids=CASES.keys())
def test_float64_equals_one_process(
    layout: dict[str, Any], changes: dict[str, Any], root: Path, make_spec: Make, one_process: Make
) -> None:
    """Two steps, as the second shows what the first leaves to it. It is probed, too."""
    spec = make_spec({**ON_GRID, **layout}, steps=2, **changes)
    found = train(spec, root)
    assert_equal(found, one_process(spec), 1e-10)
    assert len(evaluations(found)) == 1


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (ON_GRID, {"data": 2, "tensor": 2}),
        ({"pipeline": 2}, {"data": 2, "zero": 1, **ON_GRID}),
        ({"tensor": DEEP, "zero": 1}, ON_GRID),
        ({"data": 2}, {"tensor": DEEP}),
        ({"tensor": CUBE}, {"tensor": 2, "pipeline": 2}),
        (ON_GRID, {"tensor": CUBE}),
    ],
)
def test_checkpoints_move_to_other_layouts_and_back(
    first: dict[str, Any], then: dict[str, Any], root: Path, make_spec: Make, one_process: Make
) -> None:
    saved = train(
        make_spec(first, checkpoint={"every": 3, "final": False}), root, f"first-{len(str(first))}-{len(str(then))}"
    )
    (checkpoint,) = [data for kind, data in saved["events"] if kind == "checkpoint"]
    assert checkpoint["step"] == 3
    resumed = train(make_spec(then), root, f"then-{len(str(first))}-{len(str(then))}", resume=Path(checkpoint["path"]))
    whole = one_process(make_spec({}))
    assert len(resumed["losses"]) == 2
    np.testing.assert_allclose(resumed["losses"], whole["losses"][3:], rtol=1e-10)
    for name, value in whole["parameters"].items():
        np.testing.assert_allclose(resumed["parameters"][name], value, rtol=0, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("tensor", [GRID, DEEP, CUBE], ids=["2d", "2.5d", "3d"])
def test_copies_of_biases_and_norms_are_compared_and_snapshots_are_taken(
    tensor: dict[str, Any], root: Path, make_spec: Make
) -> None:
    changes = {"replica_check": {"every": 1}, "snapshot": {"every": 2}, "precision": "bf16", "steps": 4}
    run = train(make_spec({"tensor": tensor}, model=GPT2, **changes), root, f"copies-{tensor['mode']}")
    assert len(run["losses"]) == 4
    assert [data for kind, data in run["events"] if kind == "incident"] == []
