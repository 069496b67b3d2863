"""Asynchronous tensor parallelism, which gathers, multiplies and reduces in chunks of positions, equals one process."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.models import GPT2, MIXTURE
from harness.ranks import train

from .test_layouts import assert_equal

Make = Callable[..., Any]

#: Layout, and what the spec says otherwise. A rank of two has 16 positions, one of four has 8.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "two-chunks": ({"tensor": 2}, {"tensor_chunks": 2}),
    "uneven": ({"tensor": 4}, {"tensor_chunks": 3, "model": {**GPT2, "heads": 4}}),
    "more-than-positions": ({"tensor": 2}, {"tensor_chunks": 64}),
    "whole-sequences": ({"tensor": 2, "sequence": False}, {"tensor_chunks": 3}),
    "gpt2": ({"tensor": 2}, {"tensor_chunks": 2, "model": GPT2}),
    "gpt2-whole-sequences": ({"tensor": 2, "sequence": False}, {"tensor_chunks": 2, "model": GPT2}),
    "tied": ({"tensor": 2}, {"tensor_chunks": 2, "model": {**GPT2, "tied": True}}),
    "mixture": ({"tensor": 2, "data": 2, "expert": 2}, {"tensor_chunks": 2, "model": MIXTURE}),
    "accumulate-zero2": ({"tensor": 2, "data": 2, "zero": 2, "micro_batch": 4}, {"tensor_chunks": 3}),
    "zero3": ({"tensor": 2, "data": 2, "zero": 3}, {"tensor_chunks": 2}),
    "zero3-selective": ({"tensor": 2, "data": 2, "zero": 3}, {"tensor_chunks": 2, "recompute": "selective"}),
    "selective": ({"tensor": 2}, {"tensor_chunks": 3, "recompute": "selective"}),
    "selective-gpt2": ({"tensor": 2}, {"tensor_chunks": 3, "recompute": "selective", "model": GPT2}),
    "selective-whole-sequences": ({"tensor": 2, "sequence": False}, {"tensor_chunks": 3, "recompute": "selective"}),
    "full": ({"tensor": 2}, {"tensor_chunks": 2, "recompute": "full"}),
    "offloaded": ({"tensor": 2}, {"tensor_chunks": 2, "offload": {"activations": True}}),
    "pipeline": ({"tensor": 2, "pipeline": 2}, {"tensor_chunks": 2}),
    "zbv": ({"tensor": 2, "pipeline": 2, "schedule": "zbv"}, {"tensor_chunks": 3}),
    "zbv-gpt2": ({"tensor": 2, "pipeline": 2, "schedule": "zbv"}, {"tensor_chunks": 2, "model": GPT2}),
    "zbv-selective": ({"tensor": 2, "pipeline": 2, "schedule": "zbv"}, {"tensor_chunks": 2, "recompute": "selective"}),
    "zb-h1-full": ({"tensor": 2, "pipeline": 2, "schedule": "zb-h1"}, {"tensor_chunks": 2, "recompute": "full"}),
    "ring": ({"tensor": 2, "context": 2}, {"tensor_chunks": 2}),
    "dualpipev": ({"tensor": 2, "pipeline": 2, "schedule": "dualpipev"}, {"tensor_chunks": 2}),
}


def chunked(make_spec: Make, layout: dict[str, Any], tensor_chunks: int, **changes: Any) -> Any:
    return make_spec(layout, overlap={"tensor_chunks": tensor_chunks}, **changes)


@pytest.mark.parametrize("name", CASES)
def test_float64_equals_one_process(name: str, root: Path, make_spec: Make, one_process: Make) -> None:
    layout, changes = CASES[name]
    model = {"model": changes["model"]} if "model" in changes else {}
    found = train(chunked(make_spec, layout, **changes), root)
    assert_equal(found, one_process(make_spec({}, **model)), 1e-10)


@pytest.mark.skipif(shutil.which("g++") is None, reason="compiling for a CPU needs a C++ compiler")
@pytest.mark.timeout(900)  # each rank runs the C++ compiler
@pytest.mark.parametrize(
    ("layout", "changes"),
    [
        ({"tensor": 2}, {}),
        ({"tensor": 2}, {"recompute": "full"}),
        ({"tensor": 2, "pipeline": 2, "schedule": "zb-h1"}, {}),
    ],
    ids=str,
)
def test_compiled_blocks_equal_one_process(
    layout: Any, changes: Any, root: Path, make_spec: Make, one_process: Make
) -> None:
    found = train(chunked(make_spec, layout, 2, compile=True, **changes), root, patience_s=600)
    assert_equal(found, one_process(make_spec({})), 1e-10)


def test_low_precision_is_as_near_as_without_chunks(root: Path, make_spec: Make, one_process: Make) -> None:
    changes = {"optimizer": {"name": "sgd", "lr": 0.1}, "steps": 10, "eval": {"batches": 1}}
    found = train(chunked(make_spec, {"tensor": 2}, 3, precision="bf16", **changes), root)
    expected = one_process(make_spec({}, precision="fp32", **changes))
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=0.01)
