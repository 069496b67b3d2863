"""On GPUs: the same curves as one process on the CPU. `make gpu-check` runs them where there is one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from harness.ranks import train

pytestmark = pytest.mark.gpu

Make = Callable[..., Any]

ALONE = [("fp64", 1e-10), ("fp32", 1e-4), ("bf16", 0.02), ("fp16", 0.02)]
LAYOUTS: list[dict[str, Any]] = [
    {"data": 2},
    {"data": 2, "zero": 1},
    {"data": 2, "zero": 2},
    {"data": 2, "zero": 3},
    {"tensor": 2},
    {"pipeline": 2},
    {"pipeline": 2, "schedule": "zbv"},
    {"data": 2, "tensor": 2, "zero": 1},
    {"data": 2, "tensor": 2, "pipeline": 2, "zero": 3},
]


def _needs(devices: int) -> None:
    if torch.cuda.device_count() < devices:
        pytest.skip(f"needs {devices} CUDA devices, this machine has {torch.cuda.device_count()}")


@pytest.mark.parametrize(("precision", "bound"), ALONE)
def test_one_gpu_follows_the_cpu(precision: str, bound: float, root: Path, make_spec: Make, one_process: Make) -> None:
    _needs(1)
    sgd = {"name": "sgd", "lr": 0.1}
    found = train(make_spec({}, precision=precision, optimizer=sgd), root, device="cuda")
    exact = precision if precision == "fp64" else "fp32"
    np.testing.assert_allclose(
        found["losses"], one_process(make_spec({}, precision=exact, optimizer=sgd))["losses"], rtol=bound
    )


FP8: list[dict[str, Any]] = [
    {},
    {"compile": True},
    {"recompute": "selective"},
    {"layout": {"data": 2, "zero": 2}},
    {"layout": {"data": 2, "zero": 3}},
    {"layout": {"pipeline": 2}},
]


@pytest.mark.parametrize("changes", FP8, ids=str)
def test_fp8_follows_the_cpu(changes: Any, root: Path, make_spec: Make, one_process: Make) -> None:
    pytest.importorskip("torchao")
    layout = changes.get("layout", {})
    _needs(layout.get("data", 1) * layout.get("pipeline", 1))
    if torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("needs compute capability 8.9")
    sgd = {"name": "sgd", "lr": 0.1}
    found = train(make_spec(**{"layout": {}, "precision": "fp8", "optimizer": sgd, **changes}), root, device="cuda")
    exact = one_process(make_spec({}, precision="fp32", optimizer=sgd))
    np.testing.assert_allclose(found["losses"], exact["losses"], rtol=0.02)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_layouts_over_nccl_equal_one_process(layout: Any, root: Path, make_spec: Make, one_process: Make) -> None:
    _needs(layout.get("data", 1) * layout.get("tensor", 1) * layout.get("pipeline", 1))
    spec = make_spec(layout)
    np.testing.assert_allclose(train(spec, root, device="cuda")["losses"], one_process(spec)["losses"], rtol=1e-10)


def test_a_gpu_saves_the_state_of_the_step_while_it_trains_on(root: Path, make_spec: Make) -> None:
    """The copy to the host runs beside the next step: were it torn, what resumes from it would follow another curve."""
    _needs(1)
    spec = make_spec({}, precision="fp32", checkpoint={"every": 1, "keep": 9, "final": False})
    whole = train(spec, root, "saved-on-gpu", device="cuda")
    path = root / "checkpoints" / "saved-on-gpu" / "step-00000002"
    resumed = train(spec, root, "resumed-on-gpu", resume=path, device="cuda")
    np.testing.assert_allclose(resumed["losses"], whole["losses"][2:], rtol=1e-5)
