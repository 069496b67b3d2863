"""Every layout equals one process: same losses and same parameters, in float64 to 1e-10, in float32 to 1e-4."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.layouts import LAYOUTS
from harness.models import GPT2
from harness.ranks import train

Make = Callable[..., Any]


def assert_equal(found: Any, expected: Any, bound: float) -> None:
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=bound)
    np.testing.assert_allclose(found["norms"], expected["norms"], rtol=bound * 100)
    assert found["parameters"].keys() == expected["parameters"].keys()
    for name, value in expected["parameters"].items():
        np.testing.assert_allclose(found["parameters"][name], value, rtol=0, atol=bound, err_msg=name)
    assert evaluations(found) == pytest.approx(evaluations(expected), rel=bound)


def evaluations(run: Any) -> list[float]:
    return [data["loss"] for kind, data in run["events"] if kind == "eval"]


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_float64_equals_one_process(layout: Any, root: Path, make_spec: Make, one_process: Make) -> None:
    spec = make_spec(layout, steps=4)
    assert_equal(train(spec, root), one_process(spec), 1e-10)


@pytest.mark.parametrize("layout", [{"data": 2, "micro_batch": 4}, {"pipeline": 2, "data": 2, "zero": 1}], ids=str)
def test_a_validation_is_the_mean_over_its_batches(layout: Any, root: Path, make_spec: Make, one_process: Make) -> None:
    spec = make_spec(layout, steps=3, eval={"every": 2, "batches": 3})
    found = train(spec, root)
    assert [data["tokens"] for kind, data in found["events"] if kind == "eval"] == [3 * 16 * 32] * 2
    assert_equal(found, one_process(spec), 1e-10)


@pytest.mark.parametrize(
    "layout", [{"data": 2, "zero": 3}, {"tensor": 2}, {"pipeline": 2}, {"pipeline": 2, "schedule": "zbv"}]
)
def test_recompute_changes_nothing(layout: Any, root: Path, make_spec: Make, one_process: Make) -> None:
    assert_equal(train(make_spec(layout, recompute="full"), root), one_process(make_spec({})), 1e-10)


def test_recompute_alone_changes_no_bit(root: Path, make_spec: Make, one_process: Make) -> None:
    assert train(make_spec({}, recompute="full"), root)["losses"] == one_process(make_spec({}))["losses"]


@pytest.mark.parametrize(
    "layout", [{"data": 2, "zero": 1}, {"tensor": 2}, {"tensor": 2, "data": 2, "zero": 3}, {"pipeline": 2}]
)
def test_gpt2_equals_one_process(layout: Any, root: Path, make_spec: Make, one_process: Make) -> None:
    spec = make_spec(layout, model=GPT2)
    assert_equal(train(spec, root), one_process(spec), 1e-10)


@pytest.mark.parametrize(
    "layout", [{"data": 2}, {"data": 2, "zero": 2}, {"tensor": 2}, {"tensor": 2, "sequence": False}]
)
def test_tied_embedding_equals_one_process(layout: Any, root: Path, make_spec: Make, one_process: Make) -> None:
    spec = make_spec(layout, model={**GPT2, "tied": True})
    assert_equal(train(spec, root), one_process(spec), 1e-10)


FLOAT32 = ("data4", "tensor2-data2", "pipeline2-data2", "data2-tensor2-pipeline2-zero1", "data4-zero2", "data4-zero3")


@pytest.mark.parametrize("name", FLOAT32)
def test_float32_stays_within_1e_4_over_20_steps(name: str, root: Path, make_spec: Make, one_process: Make) -> None:
    spec = make_spec(LAYOUTS[name], precision="fp32", steps=20, optimizer={"lr": 1e-3}, eval={"batches": 1})
    np.testing.assert_allclose(train(spec, root)["losses"], one_process(spec)["losses"], rtol=1e-4)


LOW = [{}, {"data": 2}, {"data": 2, "zero": 1}, {"data": 2, "zero": 3}, {"tensor": 2}, {"pipeline": 2}]


@pytest.mark.parametrize("layout", LOW, ids=str)
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_low_precision_follows_float32(
    precision: str, layout: Any, root: Path, make_spec: Make, one_process: Make
) -> None:
    changes = {"optimizer": {"name": "sgd", "lr": 0.1}, "steps": 10, "eval": {"batches": 1}}
    found = train(make_spec(layout, precision=precision, **changes), root)
    expected = one_process(make_spec({}, precision="fp32", **changes))
    skipped = [data["skipped"] for kind, data in found["events"] if kind == "step"]
    assert not any(skipped)
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=0.01)


def test_same_layout_twice_is_the_same_to_the_bit(root: Path, make_spec: Make) -> None:
    spec = make_spec({"data": 2, "tensor": 2, "zero": 1}, precision="fp32")
    first, second = train(spec, root), train(spec, root)
    assert first["losses"] == second["losses"]
    assert all(np.array_equal(value, second["parameters"][name]) for name, value in first["parameters"].items())
