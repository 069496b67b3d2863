"""Recompute, offload, compile and the loss' terms change no number: each on products of axes, against one process in float64."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.models import GPT2
from harness.ranks import train

from .test_layouts import assert_equal

Make = Callable[..., Any]

ALL = {"data": 2, "tensor": 2, "pipeline": 2}
SMOOTH = {"label_smoothing": 0.1, "z_loss": 1e-2}

MEMORY_OPTIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "selective": ({}, {"recompute": "selective"}),
    "selective-gpt2-tensor2": ({"tensor": 2}, {"recompute": "selective", "model": GPT2}),
    "selective-tensor2-zero3": ({"tensor": 2, "data": 2, "zero": 3}, {"recompute": "selective"}),
    "selective-tensor2-whole-zero2": (
        {"tensor": 2, "sequence": False, "data": 2, "zero": 2},
        {"recompute": "selective"},
    ),
    "selective-interleaved2-zero1": (
        {"pipeline": 2, "schedule": "interleaved", "data": 2, "zero": 1},
        {"recompute": "selective"},
    ),
    "selective-context2-data2": ({"context": 2, "data": 2}, {"recompute": "selective"}),
    "selective-all": ({**ALL, "zero": 1}, {"recompute": "selective"}),
    "every2-tensor2-zero1": ({"tensor": 2, "data": 2, "zero": 1}, {"recompute": "every-2"}),
    "selective-every2-1f1b2": ({"pipeline": 2}, {"recompute": {"mode": "selective", "every": 2}}),
    "selective-zbv2-data2-zero3": (
        {"pipeline": 2, "schedule": "zbv", "data": 2, "zero": 3},
        {"recompute": "selective"},
    ),
    "selective-every2-interleaved-zb2": (
        {"pipeline": 2, "schedule": "interleaved-zb"},
        {"recompute": {"mode": "selective", "every": 2}},
    ),
    "activations-full-zb-h1-2": (
        {"pipeline": 2, "schedule": "zb-h1"},
        {"offload": {"activations": True}, "recompute": "full"},
    ),
    "full-all-zero3": ({**ALL, "zero": 3}, {"recompute": "full"}),
    "optimizer-alone": ({}, {"offload": {"optimizer": 1}}),
    "optimizer-half-data2": ({"data": 2}, {"offload": {"optimizer": 0.5}}),
    "optimizer-half-zero1": ({"data": 2, "zero": 1}, {"offload": {"optimizer": 0.5}}),
    "optimizer-zero2-tensor2": ({"data": 2, "zero": 2, "tensor": 2}, {"offload": {"optimizer": 1}}),
    "optimizer-zero3-uneven": ({"data": 3, "zero": 3}, {"offload": {"optimizer": 0.3}}),
    "optimizer-all": ({**ALL, "zero": 1}, {"offload": {"optimizer": 0.7}}),
    "parameters-zero3": ({"data": 2, "zero": 3}, {"offload": {"parameters": True}}),
    "parameters-tensor2-zero3": ({"data": 2, "tensor": 2, "zero": 3}, {"offload": {"parameters": True}}),
    "parameters-pipeline2-zero3": ({"data": 2, "pipeline": 2, "zero": 3}, {"offload": {"parameters": True}}),
    "activations-zero3": ({"data": 2, "zero": 3}, {"offload": {"activations": True}}),
    "activations-full-all": ({**ALL, "zero": 2}, {"offload": {"activations": True}, "recompute": "full"}),
    "activations-tensor2": ({"tensor": 2}, {"offload": {"activations": True}}),
    "activations-zbv2": ({"pipeline": 2, "schedule": "zbv"}, {"offload": {"activations": True}}),
    "everything": (
        {**ALL, "zero": 3},
        {"recompute": "every-2", "offload": {"parameters": True, "activations": True}, "loss": SMOOTH},
    ),
    "loss-tensor2": ({"tensor": 2}, {"loss": SMOOTH}),
    "loss-tensor4-whole-tied": (
        {"tensor": 4, "sequence": False},
        {"loss": {"label_smoothing": 0.2}, "model": {**GPT2, "tied": True}},
    ),
    "loss-tensor2-micro": ({"tensor": 2, "data": 2, "zero": 2, "micro_batch": 2}, {"loss": {"z_loss": 1e-2}}),
    "loss-zbv2-tensor2": ({"pipeline": 2, "schedule": "zbv", "tensor": 2}, {"loss": SMOOTH}),
    "loss-all": ({**ALL, "zero": 1}, {"loss": SMOOTH}),
}


#: In bf16, where any other order of operations changes bits.
SAME_BITS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "all-zero1": ({"data": 2, "zero": 1}, {"optimizer": 0.7, "activations": True}),
    "optimizer-replicas": ({"data": 2}, {"optimizer": 1}),
    "optimizer-zero3": ({"data": 2, "zero": 3}, {"optimizer": 1}),
    "parameters-zero3": ({"data": 2, "zero": 3}, {"parameters": True, "activations": True}),
    "activations-pipeline2": ({"pipeline": 2, "micro_batch": 2}, {"activations": True}),
    "activations-zbv2": ({"pipeline": 2, "schedule": "zbv", "micro_batch": 2}, {"activations": True}),
}


def _alone(changes: dict[str, Any]) -> dict[str, Any]:
    """What of the changes one process must share: the model and the loss."""
    return {key: value for key, value in changes.items() if key in ("model", "loss")}


@pytest.mark.parametrize("name", MEMORY_OPTIONS)
def test_float64_equals_one_process(name: str, root: Path, make_spec: Make, one_process: Make) -> None:
    layout, changes = MEMORY_OPTIONS[name]
    expected = one_process({**make_spec(layout), **_alone(changes)})
    assert_equal(train(make_spec(layout, **changes), root), expected, 1e-10)


@pytest.mark.parametrize(
    "name", ["all-zero1", *(pytest.param(name, marks=pytest.mark.full) for name in list(SAME_BITS)[1:])]
)
def test_offload_changes_no_bit(name: str, root: Path, make_spec: Make) -> None:
    layout, offload = SAME_BITS[name]
    expected, found = (
        train(make_spec(layout, precision="bf16", steps=3, offload=given), root, f"bits-{name}-{number}")
        for number, given in enumerate(({}, offload))
    )
    assert found["losses"] == expected["losses"] and found["norms"] == expected["norms"]
    for key, value in expected["parameters"].items():
        assert (found["parameters"][key] == value).all(), key
