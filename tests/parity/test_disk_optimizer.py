"""Optimizer state on a disk changes no number: the bits of memory on every layout, one process' in float64, and the same checkpoints."""

from pathlib import Path
from typing import Any, Final

import pytest
from harness.models import MIXTURE
from harness.ranks import train

from .disk_training import (
    SGD,
    Make,
    assert_a_failing_disk_ends_the_rank,
    assert_checkpoints_equal,
    assert_equals_one_process,
    assert_same_bits,
)

DISK: Final = {"optimizer": 1, "to": "disk"}

#: Name → layout and changes. In bf16, where any other order of operations changes bits.
SAME_BITS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "zero1": ({"data": 2, "zero": 1}, {}),
    "alone": ({}, {}),
    "alone-fp32": ({}, {"precision": "fp32"}),
    "replicas": ({"data": 2}, {}),
    "replicas-fp32": ({"data": 2}, {"precision": "fp32"}),
    "zero2": ({"data": 2, "zero": 2}, {"precision": {"compute": "bf16", "gradients": "compute"}}),
    "zero3": ({"data": 2, "zero": 3}, {}),
    "zero3-fp32": ({"data": 3, "zero": 3}, {"precision": "fp32"}),
    "sgd-zero1": ({"data": 2, "zero": 1}, {"optimizer": SGD}),
    "sgd-zero3": ({"data": 2, "zero": 3}, {"optimizer": SGD}),
    "fp16-zero1": ({"data": 2, "zero": 1}, {"precision": "fp16"}),
    "half-zero1": ({"data": 2, "zero": 1}, {"offload": {"optimizer": 0.5, "to": "disk"}}),
    "half-replicas": ({"data": 2}, {"offload": {"optimizer": 0.5, "to": "disk"}}),
    "all-axes": ({"data": 2, "tensor": 2, "pipeline": 2, "zero": 1}, {}),
    "context-zero2": ({"data": 2, "context": 2, "zero": 2}, {}),
    "experts-zero1": ({"data": 2, "expert": 2, "zero": 1}, {"model": MIXTURE}),
}
FLOAT64: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "zero1": ({"data": 2, "zero": 1}, {}),
    "zero2-tensor2": ({"data": 2, "zero": 2, "tensor": 2}, {}),
    "zero3": ({"data": 2, "zero": 3}, {}),
    "sgd-zero1": ({"data": 2, "zero": 1}, {"optimizer": SGD}),
    "half-pipeline2": ({"data": 2, "pipeline": 2}, {"offload": {"optimizer": 0.5, "to": "disk"}}),
}


@pytest.mark.parametrize("name", SAME_BITS)
def test_the_same_bits_as_on_the_device(name: str, root: Path, make_spec: Make) -> None:
    layout, changes = SAME_BITS[name]
    spec = make_spec(layout, **{"precision": "bf16", "steps": 3, "offload": DISK, **changes})
    assert_same_bits(spec, {}, root, name)


@pytest.mark.parametrize("name", FLOAT64)
def test_float64_equals_one_process(name: str, root: Path, make_spec: Make, one_process: Make) -> None:
    layout, changes = FLOAT64[name]
    assert_equals_one_process(make_spec(layout, **{"offload": DISK, **changes}), root, name, one_process)


def test_checkpoints_have_the_bytes_of_memory_and_continue_on_any_layout(root: Path, make_spec: Make) -> None:
    spec = make_spec({"data": 2, "zero": 1}, precision="bf16", steps=4, offload=DISK)
    assert_checkpoints_equal(spec, {}, [({"data": 2, "zero": 3}, {}), ({"pipeline": 2}, DISK)], root)


@pytest.mark.parametrize(("precision", "tensors"), [("bf16", 3), ("fp32", 2)])
def test_each_step_reports_what_it_read_and_wrote(precision: str, tensors: int, root: Path, make_spec: Make) -> None:
    """All state of the rank once in each direction, padded to pages: two moments, and in mixed precision masters, of 4 bytes each."""
    found = train(make_spec({}, precision=precision, steps=3, offload=DISK), root, f"curves-{precision}")
    steps = [data for kind, data in found["events"] if kind == "step"]
    state = sum(tensors * -(-value.nbytes // 4096) * 4096 for value in found["parameters"].values())
    for step in steps:
        curves = step["logged"]
        assert curves["disk/read"] == curves["disk/written"] == state
        assert curves["disk/bandwidth"] > 0 and 0 <= curves["disk/waited_s"] <= step["step_s"]
        assert curves["disk/written_per_day"] == pytest.approx(state * 86_400 / step["step_s"])


def test_a_disk_that_fails_ends_the_rank_with_its_code(root: Path, make_spec: Make) -> None:
    assert_a_failing_disk_ends_the_rank(
        make_spec({"data": 2, "zero": 1}, steps=4, offload=DISK, precision="bf16"), root
    )
