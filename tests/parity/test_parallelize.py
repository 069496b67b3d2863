"""The core of the parity grid: in these cases every two values that can stand in one spec meet once, on at most four ranks.

`make test` runs `CASES`: each axis with each other axis, each schedule, and each axis with each stage of ZeRO, way to recompute and
precision. `make test-all` runs those of `MORE` too.
In float64 a case equals one process to 1e-10, in float32 to 1e-4; lower precisions follow float32. Three cases have eight ranks.
Two steps show a wrong gradient, and what a step leaves to the next: moments, and gradients that were not cleared. Rounded runs are compared
by their losses alone, which follow an update by one step, so they take three.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.pairs import case_of, changes_of, layout_of, legal_cases, name_of, pairs_of
from harness.ranks import train

from .test_layouts import assert_equal

Make = Callable[..., Any]

#: `python -m harness.pairs` (in tests/) proposes such a list; one that is as good may stand here.
CASES = [
    "ring2-expert2-gpipe-zero1-full-fp32",
    "data2-tensor2-expert2-zero2-selective-bf16",
    "data2-tensor2plain-zero1-full-fp16",
    "data2-expert2-interleaved-zb-zero3-every-2-fp64",
    "ring2-expert2-dualpipev-fp16",
    "ulysses2-expert2-zbv-zero1-bf16",
    "tensor2plain-ring2-expert2-zero2-every-2-fp64",
    "data2-expert2-interleaved-zero2-fp32",
    "ulysses2-expert2-1f1b-zero1-selective-fp32",
    "tensor2-1f1b-fp64",
    "tensor2plain-interleaved-zb-selective-fp32",
    "ring2-1f1b-zero3-full-bf16",
    "data2-gpipe-every-2-bf16",
    "data2-zbv-zero3-selective-fp16",
    "data4-zero1-full-fp64",
    "data2-1f1b-fp64",
    "data2-ring2-fp64",
    "data2-ulysses2-fp64",
    "tensor2-ulysses2-fp64",
]
#: The rest of the pairs: each schedule with each axis, and each precision with each stage of ZeRO and each way to recompute.
MORE = [
    "ulysses2-1f1b-zero2-every-2-fp16",
    "ring2-interleaved-zero3-selective-bf16",
    "tensor2-zbv-every-2-fp32",
    "tensor2plain-gpipe-selective-fp64",
    "data4-zero3-fp32",
    "ulysses2-interleaved-zb-full-bf16",
    "ulysses2-dualpipev-zero3-full-fp64",
    "data2-dualpipev-zero1-every-2-bf16",
    "tensor2-interleaved-full-fp16",
    "ring2-zbv-zero2-full-fp64",
    "ulysses2-gpipe-zero3-fp16",
    "ulysses2-interleaved-zero1-every-2-fp64",
    "data4-expert2-selective-fp16",
    "ring2-interleaved-zb-zero1-fp16",
    "data4-zero2-every-2-bf16",
    "tensor2-ring2-zero1-fp64",
    "tensor2-dualpipev-selective-fp64",
    "tensor2plain-1f1b-bf16",
    "ring2-dualpipev-zero2-fp32",
    "ring2-gpipe-zero2-fp64",
    "ring2-interleaved-zb-zero2-fp64",
    "tensor2-gpipe-fp64",
    "tensor2-interleaved-zb-fp64",
    "tensor2-ring2-zero3-fp64",
    "tensor2plain-interleaved-fp64",
    "tensor2plain-zbv-fp64",
    "tensor2plain-dualpipev-fp64",
    "tensor2plain-ring2-zero3-fp64",
    "tensor2plain-ulysses2-fp64",
    "ring2-expert2-zb-h1-fp16",
    "ulysses2-zb-h1-zero3-full-fp64",
    "data2-zb-h1-zero1-every-2-bf16",
    "ring2-zb-h1-zero2-fp32",
    "tensor2-zb-h1-selective-fp64",
    "tensor2plain-zb-h1-fp64",
    "ring2-expert2-zb-h2-fp16",
    "ulysses2-zb-h2-zero3-full-fp64",
    "data2-zb-h2-zero1-every-2-bf16",
    "ring2-zb-h2-zero2-fp32",
    "tensor2-zb-h2-selective-fp64",
    "tensor2plain-zb-h2-fp64",
]
EIGHT: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "three-d": ({"data": 2, "tensor": 2, "pipeline": 2, "zero": 1, "micro_batch": 2}, {"recompute": "selective"}),
    "four-d": (
        {"data": 2, "tensor": 2, "context": 2, "zero": 3, "shard": 2},
        {"loss": {"label_smoothing": 0.1, "z_loss": 1e-2}},
    ),
    "v-shaped": ({"pipeline": 2, "schedule": "zbv", "data": 2, "tensor": 2, "zero": 2}, {}),
}
#: Adam's first steps are about the sign of a gradient: where numbers are rounded, runs are compared by SGD.
ROUNDED = {"optimizer": {"name": "sgd", "lr": 0.1}}
#: A probe counts what each operation sends, which costs as much as the step. Other tests have it.
UNPROBED = {"probe": {"every": None}}
BOUNDS = {"fp32": 1e-4, "bf16": 0.01, "fp16": 0.01}


def test_every_legal_pair_is_in_the_core() -> None:
    covered = {pair for name in [*CASES, *MORE] for pair in pairs_of(case_of(name))}
    assert {pair for case in legal_cases() for pair in pairs_of(case)} - covered == set()
    assert [name_of(case_of(name)) for name in [*CASES, *MORE]] == [*CASES, *MORE]


@pytest.mark.parametrize("name", [*CASES, *(pytest.param(name, marks=pytest.mark.full) for name in MORE)])
def test_equals_one_process(name: str, root: Path, make_spec: Make, one_process: Make) -> None:
    case = case_of(name)
    layout, changes = layout_of(case), changes_of(case)
    alone = {key: value for key, value in changes.items() if key == "model"}
    if case["precision"] == "fp64":
        expected = one_process(make_spec({}, steps=2, **alone))
        assert_equal(train(make_spec(layout, steps=2, **UNPROBED, **changes), root), expected, 1e-10)
        return
    expected = one_process(make_spec({}, steps=3, precision="fp32", **ROUNDED, **alone))
    found = train(make_spec(layout, steps=3, **ROUNDED, **UNPROBED, **changes), root)
    assert not any(data["skipped"] for kind, data in found["events"] if kind == "step")
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=BOUNDS[case["precision"]])


@pytest.mark.parametrize("name", EIGHT)
def test_eight_ranks_equal_one_process(name: str, root: Path, make_spec: Make, one_process: Make) -> None:
    layout, changes = EIGHT[name]
    alone = {key: value for key, value in changes.items() if key == "loss"}
    expected = one_process(make_spec({}, steps=2, **alone))
    assert_equal(train(make_spec(layout, steps=2, **changes), root), expected, 1e-10)
