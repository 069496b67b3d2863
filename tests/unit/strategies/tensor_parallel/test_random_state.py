"""Each rank keeps its own random state under random operators on DTensors."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch.distributed.tensor import _random

from shardyard.strategies.mesh import Mesh
from shardyard.strategies.tensor_parallel.random_state import keep_own


class Handle:
    """In place of `torch.cuda`."""

    is_available = staticmethod(lambda: True)
    set_rng_state = staticmethod(lambda state: None)


def mesh_on(device: str) -> Mesh:
    tensor = SimpleNamespace(device_type=device, get_coordinate=lambda: [0])
    mesh: Any = SimpleNamespace(device=torch.device(device), device_mesh=lambda axis: tensor)
    return cast(Mesh, mesh)


def test_torch_is_not_to_broadcast_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no process group here, and without a device no first operator could ask for one."""
    monkeypatch.setattr(_random, "_rng_tracker", None)
    monkeypatch.setattr(_random, "_get_device_handle", lambda kind: Handle)
    monkeypatch.setattr(_random, "_resolve_device", lambda device_mesh: torch.device("cuda"))
    before = torch.get_rng_state()
    keep_own(mesh_on("cuda"))
    assert isinstance(_random._rng_tracker, _random.OffsetBasedRNGTracker)
    assert torch.equal(torch.get_rng_state(), before)


def test_on_cpus_torch_has_no_such_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_random, "_rng_tracker", None)
    keep_own(mesh_on("cpu"))
    assert _random._rng_tracker is None
