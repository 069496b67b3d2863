"""Packed documents: every layout equals one process, in float64 to 1e-10. `test_textbook.py` says what that process computes.

Experts and modules of a user's own are in `test_packed_models.py`.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.layouts import BOTH, CONTEXT_LAYOUTS, CUBE, GATHER, GRID, LAYOUTS, RING, SCORES, WINDOWS
from harness.models import GPT2
from harness.ranks import train
from harness.textbook_packed import save_records

from .test_fp8 import exact
from .test_layouts import assert_equal

Make = Callable[..., Any]


@pytest.fixture(scope="module")
def packed_spec(root: Path, make_spec: Make) -> Make:
    """`packed_spec(layout, **changes)`: `make_spec` with packed documents."""
    data = {**save_records(root), "documents": "packed", "seq_len": 32}
    return lambda layout, **changes: make_spec(layout, data=data, **{"steps": 4, **changes})


TERMS = {"label_smoothing": 0.1, "z_loss": 0.01}
KINDS = (
    "data4-zero1",
    "data4-zero2",
    "data4-zero3-shard2",
    "data3-uneven",
    "accumulate",
    "accumulate-zero2",
    "accumulate-zero3",
    "tensor2",
    "tensor2-whole",
    "tensor2-data2-zero3",
    "gpipe2",
    "1f1b4",
    "interleaved2",
    "zbv2",
    "pipeline2-data2-zero3",
    "zbv2-data2-zero1",
    "zbv2-tensor2",
    "data2-tensor2-pipeline2-zero2",
    "grid2x2",
    "grid2x2-data2-zero1",
    "grids2x2x2",
    "cube2x2x2",
)


@pytest.mark.parametrize("name", KINDS)
def test_float64_equals_one_process(name: str, root: Path, packed_spec: Make, one_process: Make) -> None:
    spec = packed_spec(LAYOUTS[name])
    assert_equal(train(spec, root), one_process(spec), 1e-10)


@pytest.mark.parametrize("layout", CONTEXT_LAYOUTS.values(), ids=CONTEXT_LAYOUTS.keys())
def test_cut_sequences_equal_one_process(layout: Any, root: Path, packed_spec: Make, one_process: Make) -> None:
    spec = packed_spec(layout)
    assert_equal(train(spec, root), one_process(spec), 1e-10)


OF_GPT2: dict[str, dict[str, Any]] = {
    "data2-zero2-accumulate": {"data": 2, "zero": 2, "micro_batch": 2},
    "tensor2": {"tensor": 2},
    "1f1b2-tensor2": {"pipeline": 2, "tensor": 2},
    "grid2x2-accumulate": {"tensor": GRID, "micro_batch": 4},
    "grid2x2-1f1b2": {"tensor": GRID, "pipeline": 2, "micro_batch": 4},
    "cube2x2x2-one-sequence": {"tensor": CUBE, "micro_batch": 4},
    "ring2-tensor2": {**RING, "tensor": 2},
    "ulysses2-ring2-zero3": {**BOTH, "zero": 3},
    "gather2-zbv2": {**GATHER, "pipeline": 2, "schedule": "zbv"},
}


@pytest.mark.parametrize("layout", OF_GPT2.values(), ids=OF_GPT2.keys())
def test_gpt2_equals_one_process(layout: Any, root: Path, packed_spec: Make, one_process: Make) -> None:
    spec = packed_spec(layout, model=GPT2)
    assert_equal(train(spec, root), one_process(spec), 1e-10)


MEMORY_OPTIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "full": ({}, {"recompute": "full"}),
    "full-zbv": ({**RING, "pipeline": 2, "schedule": "zbv"}, {"recompute": "full"}),
    "full-scores": (SCORES, {"recompute": "full"}),
    "every-2-1f1b": ({"pipeline": 2}, {"recompute": "every-2"}),
    "selective": ({}, {"recompute": "selective"}),
    "selective-ring-zero3": ({**RING, "data": 2, "zero": 3}, {"recompute": "selective"}),
    "selective-windows": (WINDOWS, {"recompute": "selective"}),
    "activations-offloaded": ({}, {"offload": {"activations": True}}),
    "activations-offloaded-ring": (RING, {"offload": {"activations": True}}),
    "optimizer-offloaded": ({"data": 2, "zero": 2}, {"offload": {"optimizer": 1.0}}),
    "chunks": ({"tensor": 2, "data": 2, "zero": 3}, {"loss": {"chunk_tokens": 24}}),
    "chunks-1f1b": ({"pipeline": 2}, {"loss": {"chunk_tokens": 24}}),
}


@pytest.mark.parametrize("name", MEMORY_OPTIONS)
def test_what_saves_memory_changes_nothing(name: str, root: Path, packed_spec: Make, one_process: Make) -> None:
    layout, options = MEMORY_OPTIONS[name]
    assert_equal(train(packed_spec(layout, **options), root), one_process(packed_spec({})), 1e-10)


COMPILED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "data2-zero1": ({"data": 2, "zero": 1}, {}),
    "data2-zero3-full": ({"data": 2, "zero": 3}, {"recompute": "full"}),
    "ring2-full": (RING, {"recompute": "full"}),
    "tensor2": ({"tensor": 2}, {}),
    "1f1b2": ({"pipeline": 2, "micro_batch": 4}, {}),
    "ring2": (RING, {}),
    "ulysses2-ring2-zero1": ({**BOTH, "zero": 1}, {}),
    "gather2-data2": ({**GATHER, "data": 2}, {}),
}


@pytest.mark.timeout(900)  # each rank runs the C++ compiler
@pytest.mark.skipif(shutil.which("g++") is None, reason="compiling for a CPU needs a C++ compiler")
@pytest.mark.parametrize("name", COMPILED)
def test_compiled_blocks_equal_one_process(name: str, root: Path, packed_spec: Make, one_process: Make) -> None:
    layout, options = COMPILED[name]
    found = train(packed_spec(layout, compile=True, **options), root, patience_s=600)
    assert_equal(found, one_process(packed_spec({})), 1e-10)


@pytest.mark.parametrize("layout", [{"data": 2, "zero": 3}, {"pipeline": 2}], ids=str)
def test_fp8_equals_one_process(layout: Any, root: Path, packed_spec: Make) -> None:
    """As in `test_fp8.py`: the same micro-batches everywhere, whose scales are those of one process."""
    alone, found = (
        train(packed_spec({**of, "micro_batch": 4}, precision="fp8"), root, work=exact) for of in ({}, layout)
    )
    assert_equal(found, alone, 1e-10)


@pytest.mark.parametrize("more", [{}, {"micro_batch": 4}], ids=str)
def test_parameter_servers_equal_one_process(more: Any, root: Path, packed_spec: Make, one_process: Make) -> None:
    spec = packed_spec({"data": 2, "parameter_server": {"servers": 2}, **more})
    assert_equal(train(spec, root), one_process(spec), 1e-10)


def test_smoothing_and_z_loss_count_the_same_targets(root: Path, packed_spec: Make, one_process: Make) -> None:
    whole = one_process(packed_spec({}, loss=TERMS))
    for layout, chunk in (({"tensor": 2, "data": 2}, None), ({"tensor": 2}, 24), (RING, None)):
        spec = packed_spec(layout, loss={**TERMS, "chunk_tokens": chunk})
        assert_equal(train(spec, root), whole, 1e-10)


@pytest.mark.parametrize(("first", "then"), [(RING, {"data": 2, "zero": 3}), ({"tensor": 2}, GATHER)], ids=str)
def test_goes_on_with_the_next_sample_on_another_layout(
    first: Any, then: Any, root: Path, packed_spec: Make, one_process: Make
) -> None:
    name = f"packed-{first}"
    saved = train(packed_spec(first, checkpoint={"every": 2, "final": False}), root, name)
    path = next(Path(data["path"]) for kind, data in saved["events"] if kind == "checkpoint" and data["step"] == 2)
    resumed = train(packed_spec(then), root, f"{name}-then", resume=path)
    np.testing.assert_allclose(resumed["losses"], one_process(packed_spec({}))["losses"][2:], rtol=1e-10)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_low_precision_follows_float32(precision: str, root: Path, packed_spec: Make, one_process: Make) -> None:
    changes = {"optimizer": {"name": "sgd", "lr": 0.1}, "steps": 10, "eval": {"batches": 1}}
    found = train(packed_spec(BOTH, precision=precision, **changes), root)
    expected = one_process(packed_spec({}, precision="fp32", **changes))
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=1e-5 if precision == "fp32" else 0.01)
