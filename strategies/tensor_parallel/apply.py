"""Tensor parallelism: each block's matrices sharded by column, then by row (1909.08053), with sequence parallelism between (2205.05198).

The plan is the model's own data (module pattern → style). Per block and micro-batch, with n = batch · seq · dim elements and n̂ =
n(t−1)/t: 2 all-reduces forward and 2 backward, 8n̂. With sequence parallelism 2 all-gathers and 2 reduce-scatters forward, the same
backward, and 2 all-gathers more, as only each rank's part of a gathered input is kept (`linear.py`): 10n̂; all activations shrink
to 1/t.

Every parameter becomes a DTensor, those that are not sharded as replicas, so that none is forgotten. Only parameters that a style
sharded manually and recorded (`shard_manually` in `param_shard.py`: experts, which have an axis of their own as well) stay plain
tensors.
"""

from typing import Protocol, runtime_checkable

from torch import nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ParallelStyle, parallelize_module

from ..layout import Refusal
from ..mesh import Mesh
from ..param_shard import manual_shards
from ..torch_version import require
from . import functional_collectives, random_state
from .cube import cube_of
from .cube_apply import apply_cube
from .grid import grid_of
from .grid_apply import apply_grid
from .replaced_parameters import left_out, same_weights


@runtime_checkable
class TensorPlanned(Protocol):
    """A model that has a plan for sharding its modules."""

    def tensor_plan(self, sequence: bool) -> dict[str, ParallelStyle]:
        """Module pattern (`blocks.*.attention.q`) → style, covering every parameter."""


class ChunkedStyle(ParallelStyle):
    """A style whose modules can send in chunks of positions (`tensor_axis.py`)."""

    chunks = 1


def apply_tensor(part: nn.Module, mesh: Mesh, chunks: int = 1) -> None:
    """Shard `part` over the tensor axis by its model's plan. Raises `Refusal` if it has no plan, or the plan leaves out a parameter
    or shards the places of one weight differently.

    `chunks`: of the plan's styles that have them; more than one is refused if none has. Raises `RuntimeError` on a version of torch that
    was not tried.
    """
    if mesh.size("tensor") == 1:
        return
    shape = mesh.layout.tensor_shape
    if shape is not None:
        if shape.mode == "3d":
            apply_cube(part, cube_of(mesh))
        else:
            apply_grid(part, grid_of(mesh))
        return
    if not isinstance(part, TensorPlanned):
        raise Refusal(
            "layout.tensor",
            f"{type(part).__name__} has no tensor_plan(sequence), so it cannot be sharded over the tensor axis.",
            "Set layout.tensor to 1, or add that method to the module.",
        )
    require(functional_collectives.API)
    random_state.keep_own(mesh)
    plan = part.tensor_plan(mesh.layout.sequence)
    _divide(plan, type(part).__name__, chunks)
    with same_weights(part):
        parallelize_module(part, mesh.device_mesh("tensor"), _present(part, plan))
    plain = [
        name
        for name, value in part.named_parameters()
        if not isinstance(value, DTensor) and name not in manual_shards(part)
    ]
    if plain:
        raise left_out(part, plain[0])


def _divide(plan: dict[str, ParallelStyle], model: str, chunks: int) -> None:
    """Set the number of chunks of those styles of the model's plan that have them."""
    styles = [style for style in plan.values() if isinstance(style, ChunkedStyle)]
    if chunks > 1 and not styles:
        raise Refusal(
            "overlap.tensor_chunks",
            f"no style in the tensor plan of {model} sends in chunks.",
            "Set overlap.tensor_chunks to 1.",
        )
    for style in styles:
        style.chunks = chunks


def _present(part: nn.Module, plan: dict[str, ParallelStyle]) -> dict[str, ParallelStyle]:
    """The plan without the modules that are on other pipeline ranks."""
    return {pattern: style for pattern, style in plan.items() if getattr(part, pattern.split(".")[0], part) is not None}
