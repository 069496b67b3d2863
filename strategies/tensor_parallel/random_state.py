"""Random operators on DTensors, such as the dropout of a module of one's own between sharded layers.

On a GPU the first of them makes torch broadcast the world's first rank's random state over the world, in the middle of a pass: replicas
would draw its numbers in that step, recomputation would draw others, and a stage of a pipeline without such an operator would not take
part.
"""

from typing import Any, Final

import torch
from torch.distributed.tensor import _random

from ..mesh import Mesh
from ..torch_version import require

API: Final = "torch.distributed.tensor._random.manual_seed"


def keep_own(mesh: Mesh) -> None:
    """Let each rank keep its own random state, which `seed` sets for each step. Raises `RuntimeError` on a version of torch not tried."""
    if mesh.device.type == "cuda":
        require(API)
        before = torch.get_rng_state()
        _random.manual_seed(torch.initial_seed(), mesh.device_mesh("tensor"))
        torch.set_rng_state(before)


def leave_untracked() -> None:
    """Let random operators on DTensors run as others do: for a dry run, whose tensors have no numbers, and which has no driver to ask."""
    require(API)
    module: Any = _random
    module._rng_tracker = _Untracked()


class _Untracked:
    distribute_region_enabled = False
