"""fp8 by 8-bit values that a CPU multiplies in fp32: every legal layout equals one process, and the losses follow bf16."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.ranks import train, train_rank

from shardyard.strategies.memory_options import SPLIT_BACKWARD

from .test_layouts import assert_equal

Make = Callable[..., Any]

#: Layout and what else changes. The same micro-batches of 4 sequences everywhere: scales are those of a micro-batch.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "data2": ({"data": 2}, {}),
    "data4-zero1": ({"data": 4, "zero": 1}, {}),
    "data2-zero2": ({"data": 2, "zero": 2}, {}),
    "data2-zero3": ({"data": 2, "zero": 3}, {}),
    "data4-shard2": ({"data": 4, "zero": 3, "shard": 2}, {}),
    "1f1b2": ({"pipeline": 2}, {}),
    "interleaved2-data2-zero1": ({"pipeline": 2, "schedule": "interleaved", "data": 2, "zero": 1}, {}),
    "zb-h1-2": ({"pipeline": 2, "schedule": "zb-h1"}, {}),
    "zb-h2-2-full": ({"pipeline": 2, "schedule": "zb-h2"}, {"recompute": "full"}),
    "zbv2-selective": ({"pipeline": 2, "schedule": "zbv"}, {"recompute": "selective"}),
    "interleaved-zb2-data2-zero1": ({"pipeline": 2, "schedule": "interleaved-zb", "data": 2, "zero": 1}, {}),
    "zb-h1-2-data2-zero3": ({"pipeline": 2, "schedule": "zb-h1", "data": 2, "zero": 3}, {}),
    "full": ({}, {"recompute": "full"}),
    "selective-data2-zero3": ({"data": 2, "zero": 3}, {"recompute": "selective"}),
    "activations": ({}, {"offload": {"activations": True}}),
    "optimizer-zero1": ({"data": 2, "zero": 1}, {"offload": {"optimizer": 0.5}}),
    "parameters-zero3": ({"data": 2, "zero": 3}, {"offload": {"parameters": True}}),
}


def exact(rank: int, world: int, port: int, orders: str) -> Any:
    """Train with fp8 products within float64, so that what is not fp8 is exact."""
    import torch

    return _emulated(rank, world, port, orders, torch.float64, torch.float64)


def _mixed(rank: int, world: int, port: int, orders: str) -> Any:
    """Train as on a GPU: bf16 around the products, fp32 masters."""
    import torch

    return _emulated(rank, world, port, orders, torch.bfloat16, torch.float32)


def _emulated(rank: int, world: int, port: int, orders: str, compute: Any, master: Any) -> Any:
    from shardyard.strategies.precision import PRECISIONS

    PRECISIONS["fp8"] = replace(PRECISIONS["fp8"], compute=compute, master=master, emulated=True)
    return train_rank(rank, world, port, orders)


@pytest.fixture(scope="module")
def alone(root: Path, make_spec: Make) -> Any:
    return train(make_spec({"micro_batch": 4}, precision="fp8"), root, "fp8-alone", work=exact)


@pytest.mark.parametrize("name", CASES)
def test_equals_one_process(name: str, alone: Any, root: Path, make_spec: Make) -> None:
    layout, changes = CASES[name]
    found = train(make_spec({**layout, "micro_batch": 4}, precision="fp8", **changes), root, work=exact)
    assert_equal(found, alone, 1e-10)


#: Sums over ranks of a gradient's norm are rounded by layout; without clipping they change nothing.
UNCLIPPED = {"micro_batch": 2}, {"precision": "fp8", "optimizer": {"name": "sgd", "lr": 0.1, "clip_norm": None}}


@pytest.fixture(scope="module")
def whole_passes(root: Path, make_spec: Make) -> Any:
    layout, more = UNCLIPPED
    return train(make_spec({"pipeline": 2, **layout}, **more), root, "fp8-1f1b", work=_mixed)


@pytest.mark.parametrize("schedule", SPLIT_BACKWARD)
def test_a_split_backward_pass_changes_no_bit(schedule: str, whole_passes: Any, root: Path, make_spec: Make) -> None:
    layout, more = UNCLIPPED
    found = train(make_spec({"pipeline": 2, "schedule": schedule, **layout}, **more), root, work=_mixed)
    assert found["losses"] == whole_passes["losses"]
    assert found["parameters"].keys() == whole_passes["parameters"].keys()
    for name, value in whole_passes["parameters"].items():
        np.testing.assert_array_equal(found["parameters"][name], value, err_msg=name)


def test_it_is_fp8_that_runs(alone: Any, one_process: Make, make_spec: Make) -> None:
    exact = one_process(make_spec({}))
    apart = np.abs(np.array(alone["losses"]) / np.array(exact["losses"]) - 1)
    assert apart[0] > 1e-6  # e4m3 keeps 4 binary digits: no other precision is so far off at the first step


def test_losses_follow_bf16(root: Path, make_spec: Make) -> None:
    changes = {"optimizer": {"name": "sgd", "lr": 0.1}, "steps": 10}
    found = train(make_spec({"data": 2, "zero": 1}, precision="fp8", **changes), root, work=_mixed)
    expected = train(make_spec({"data": 2, "zero": 1}, precision="bf16", **changes), root)
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=0.02)
    assert found["losses"] != expected["losses"]
    assert {k: v.dtype for k, v in found["parameters"].items()} == {
        k: v.dtype for k, v in expected["parameters"].items()
    }


@pytest.mark.skipif(shutil.which("g++") is None, reason="compiling for a CPU needs a C++ compiler")
@pytest.mark.parametrize("layout", [{"data": 2}, {"pipeline": 2, "schedule": "zb-h1"}], ids=str)
def test_compiled_blocks_multiply_in_fp8_too(layout: Any, alone: Any, root: Path, make_spec: Make) -> None:
    found = train(make_spec({**layout, "micro_batch": 4}, precision="fp8", compile=True), root, work=exact)
    assert_equal(found, alone, 1e-10)


def test_a_cpu_refuses(root: Path, make_spec: Make) -> None:
    with pytest.raises(RuntimeError, match=r"fp8 needs CUDA devices, this rank computes on cpu\. Use bf16"):
        train(make_spec({}, precision="fp8"), root)
