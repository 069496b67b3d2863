"""What is rarely asked for together works together: compile, offload and experts with the axes that bend them most."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness.models import MIXTURE
from harness.ranks import train

from .test_expert_parallel import assert_equal as assert_experts_equal
from .test_layouts import assert_equal

Make = Callable[..., Any]

COMPILED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "zero3": ({"data": 2, "zero": 3}, {}),
    "full": ({"data": 2}, {"recompute": "full"}),
    "interleaved2": ({"pipeline": 2, "schedule": "interleaved"}, {}),
    "selective-zero3": ({"data": 2, "zero": 3}, {"recompute": "selective"}),
    "1f1b2-tensor2": ({"pipeline": 2, "tensor": 2}, {}),
    "every2-interleaved2": ({"pipeline": 2, "schedule": "interleaved"}, {"recompute": "every-2"}),
    "optimizer-zero2": ({"data": 2, "zero": 2}, {"offload": {"optimizer": 0.5}}),
    "parameters-zero3": ({"data": 2, "zero": 3}, {"offload": {"parameters": True}}),
    "context2": ({"context": 2}, {}),
}


@pytest.mark.skipif(shutil.which("g++") is None, reason="compiling for a CPU needs a C++ compiler")
@pytest.mark.parametrize("name", COMPILED)
def test_compiled(name: str, root: Path, make_spec: Make, one_process: Make) -> None:
    layout, changes = COMPILED[name]
    found = train(make_spec(layout, compile=True, steps=3, **changes), root)
    assert_equal(found, one_process(make_spec({}, steps=3)), 1e-10)


EXPERTS = {"data": 2, "expert": 2}
OFFLOADED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "optimizer-zero0": (EXPERTS, {"optimizer": 0.5}),
    "optimizer-zero1": ({**EXPERTS, "zero": 1}, {"optimizer": 1}),
    "optimizer-zero2": ({**EXPERTS, "data": 4, "zero": 2}, {"optimizer": 0.5}),
    "optimizer-zero3": ({**EXPERTS, "zero": 3}, {"optimizer": 0.5}),
    "parameters-zero3": ({**EXPERTS, "zero": 3}, {"parameters": True}),
    "parameters-data4-zero3": ({**EXPERTS, "data": 4, "zero": 3}, {"parameters": True}),
    "activations": (EXPERTS, {"activations": True}),
    "activations-tensor2-zero1": ({**EXPERTS, "tensor": 2, "zero": 1}, {"activations": True}),
    "activations-zbv2": ({**EXPERTS, "pipeline": 2, "schedule": "zbv"}, {"activations": True}),
    "everything": ({**EXPERTS, "tensor": 2, "zero": 3}, {"parameters": True, "activations": True}),
}


@pytest.mark.parametrize("name", OFFLOADED)
def test_offload_of_experts(name: str, root: Path, make_spec: Make, one_process: Make) -> None:
    layout, offload = OFFLOADED[name]
    found = train(make_spec(layout, model=MIXTURE, offload=offload, steps=3), root)
    assert_experts_equal(found, one_process(make_spec({}, model=MIXTURE, steps=3)))


SCHEDULED: list[dict[str, Any]] = [
    {"schedule": "interleaved-zb"},
    {"schedule": "interleaved-zb", "data": 2, "expert": 2},
    {"schedule": "interleaved-zb", "data": 2, "expert": 2, "zero": 1},
    {"schedule": "interleaved-zb", "data": 2, "expert": 2, "zero": 2},
    {"schedule": "interleaved-zb", "data": 2, "expert": 2, "zero": 3},
    {"schedule": "interleaved-zb", "data": 2, "expert": 2, "tensor": 2},
    {"schedule": "zbv", "data": 4, "expert": 2, "zero": 1},
    {"schedule": "zbv", "data": 2, "expert": 2, "zero": 2},
    {"schedule": "zbv", "data": 2, "expert": 2, "tensor": 2, "zero": 3},
    {"schedule": "dualpipev"},
    {"schedule": "dualpipev", "data": 2, "expert": 2},
    {"schedule": "dualpipev", "data": 2, "expert": 2, "zero": 1},
    {"schedule": "dualpipev", "data": 2, "expert": 2, "zero": 2},
    {"schedule": "dualpipev", "data": 2, "expert": 2, "zero": 3},
    {"schedule": "dualpipev", "context": 2, "expert": 2},
]


@pytest.mark.parametrize("layout", SCHEDULED, ids=str)
def test_experts_under_split_backward_passes(layout: Any, root: Path, make_spec: Make, one_process: Make) -> None:
    found = train(make_spec({"pipeline": 2, **layout}, model=MIXTURE, steps=3), root)
    assert_experts_equal(found, one_process(make_spec({}, model=MIXTURE, steps=3)))


@pytest.mark.parametrize("schedule", ["gpipe", "interleaved-zb", "dualpipev"])
def test_a_capacity_under_a_pipeline(schedule: str, root: Path, make_spec: Make, one_process: Make) -> None:
    changes = {"model": {**MIXTURE, "capacity_factor": 0.75}, "steps": 3}
    found = train(make_spec({"pipeline": 2, "schedule": schedule, "data": 2, "expert": 2}, **changes), root)
    assert_experts_equal(found, one_process(make_spec({}, **changes)))
