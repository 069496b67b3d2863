"""A param shard: this rank's slice of one named parameter, for any layout. Everything after the backward pass uses only param shards.

The optimizer, clipping and checkpoints see plain tensors with a name, the whole parameter's shape and an offset into it, so that
none of them depends on the strategy that sharded the parameter.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import nn
from torch.distributed.tensor import DTensor, Shard

from .mesh import GROUPS, REPLICA, Mesh
from .telemetry.current import wait_on


@dataclass(frozen=True)
class DimShard:
    """One division of a parameter: dimension `dim` into `parts` chunks as by `torch.chunk`, of which this rank has `index`."""

    axis: str
    dim: int
    parts: int
    index: int


class DeviceSide:
    """What the device has of a param shard whose values are on the host.

    `value` is in the compute dtype; the gradient, while there is one, in the master's. `is_new`: `value` is that of the newest update.
    """

    def __init__(self, value: torch.Tensor) -> None:
        self.value = value
        self.gradient: torch.Tensor | None = None
        self.is_new = False


@dataclass(frozen=True, eq=False)
class ParamShard:
    """`tensor` is the slice at `offset` of the parameter `name`, whose whole shape is `shape`.

    The parameter is sharded over the mesh `axes` and replicated over the others; `replicas` is the axis of its data strategy.
    """

    name: str
    shape: tuple[int, ...]
    offset: tuple[int, ...]
    tensor: torch.Tensor
    axes: frozenset[str]
    replicas: str = REPLICA
    borrowed: bool = False  # another pipeline rank's param shard of the same name owns the slice
    on_device: DeviceSide | None = None  # of a `tensor` that stays on the host (`activation_memory/host_optimizer.py`)
    otherwise: tuple[str, ...] = ()  # of a checkpoint without `name` the first of these that it has is read

    @property
    def gradient(self) -> torch.Tensor | None:
        """The reduced gradient, on the device where it was computed."""
        return self.tensor.grad if self.on_device is None else self.on_device.gradient

    def set_gradient(self, gradient: torch.Tensor | None) -> None:
        if self.on_device is None:
            self.tensor.grad = gradient
        else:
            self.on_device.gradient = gradient

    def publish(self) -> None:
        """Let the device have the values that were set on the host, unless it has them from the optimizer's step."""
        if self.on_device is not None:
            if not self.on_device.is_new:
                self.on_device.value.copy_(self.tensor.to(self.on_device.value.dtype))
            self.on_device.is_new = False

    @property
    def is_matrix(self) -> bool:
        """Weight decay applies to matrices, not to norms and biases."""
        return len(self.shape) > 1

    def like(self, name: str, tensor: torch.Tensor, otherwise: tuple[str, ...] = ()) -> "ParamShard":
        """Another tensor of the same slice, such as an optimizer moment."""
        return replace(self, name=name, tensor=tensor, on_device=None, otherwise=otherwise)

    def owned(self, mesh: Mesh) -> bool:
        """True on exactly one of the ranks that hold the same slice."""
        between, inside = GROUPS[self.replicas]
        replicas = between if inside in self.axes else self.replicas
        first = all(mesh.index(axis) == 0 for axis in (replicas, *mesh.tensor_axes) if axis not in self.axes)
        return first and not self.borrowed


def with_elements(shards: Sequence[ParamShard]) -> list[ParamShard]:
    """Those that have an element: of a parameter with fewer rows than ranks some ranks have none."""
    return [shard for shard in shards if shard.tensor.numel()]


@dataclass(frozen=True)
class Parameter:
    """A parameter of this rank's model part, with the dimensions that tensor and expert parallelism sharded.

    `replicas` is the mesh axis over which it is replicated: its gradient is summed over that axis, which ZeRO shards. Only experts that
    are distributed over ranks have another axis than the rest.
    """

    name: str
    value: nn.Parameter
    cuts: tuple[DimShard, ...]
    shape: tuple[int, ...]
    replicas: str = REPLICA
    borrowed: bool = False  # held by an earlier pipeline stage under the same name, as a tied head is

    @property
    def local(self) -> torch.Tensor:
        """The plain tensor that the model computes with, at least one-dimensional, sharing its memory."""
        data = self.value.detach()
        return _at_least_1d(data.to_local() if isinstance(data, DTensor) else data)

    @property
    def most(self) -> int:
        """Elements of the part of the rank that has most of it: the same on all ranks, where `local` differs by rank."""
        sizes = list(self.shape)
        for cut in self.cuts:
            sizes[cut.dim] = -(-sizes[cut.dim] // cut.parts)
        return math.prod(sizes)

    def gradient(self) -> torch.Tensor | None:
        """The plain local gradient. If it is still partial over the tensor axis, it is reduced here."""
        return None if self.value.grad is None else self.local_gradient(self.value.grad)

    def local_gradient(self, grad: torch.Tensor) -> torch.Tensor:
        """`grad`, a gradient of this parameter, in the form that `gradient` returns."""
        if isinstance(grad, DTensor):
            assert isinstance(self.value, DTensor)
            whole = wait_on(partial(grad.redistribute, placements=self.value.placements), "redistribute", "tensor")
            grad = whole.to_local()
        return _at_least_1d(grad)

    def shard(self, tensor: torch.Tensor, *more: DimShard) -> ParamShard:
        """The param shard that `tensor` is after the further divisions `more`."""
        cuts = (*self.cuts, *more)
        offset, size = slice_of(self.shape, cuts)
        assert tuple(tensor.shape) == size, (self.name, tuple(tensor.shape), size)
        axes = frozenset(cut.axis for cut in cuts)
        return ParamShard(self.name, self.shape, offset, tensor, axes, self.replicas, self.borrowed)


@dataclass(frozen=True)
class Tie:
    """That the pipeline stages `stages` hold one weight, whose name in param shards is `name`. `stage` is the one that has this note."""

    name: str
    stages: tuple[int, ...]
    stage: int

    @property
    def borrowed(self) -> bool:
        """Whether an earlier stage holds it too, whose param shard counts."""
        return self.stage != self.stages[0]


def parameters(modules: Sequence[nn.Module], mesh: Mesh, frozen: bool = False) -> list[Parameter]:
    """All trainable parameters of this rank's model parts, before any data strategy, in order of use, each once. `frozen`: others too."""
    found: dict[nn.Parameter, Parameter] = {}
    for module in modules:
        by_hand, tied = manual_shards(module), ties(module)
        for own, value in module.named_parameters():
            if not (value.requires_grad or frozen) or value in found:
                continue
            tie = tied.get(own)
            name, borrowed = (own, False) if tie is None else (tie.name, tie.borrowed)
            if own in by_hand:
                placed = by_hand[own]
                found[value] = Parameter(name, value, placed.cuts, placed.shape, placed.replicas, borrowed)
            else:
                cuts = _tensor_cuts(value, mesh)
                found[value] = Parameter(name, value, cuts, tuple(value.shape) or (1,), borrowed=borrowed)
    return list(found.values())


def frozen_names(modules: Sequence[nn.Module]) -> set[str]:
    """The names of the parameters without gradients, as param shards would have them if they were trained; of tied ones all names."""
    return {
        ties(module)[own].name if own in ties(module) else own
        for module in modules
        for own, value in module.named_parameters(remove_duplicate=False)
        if not value.requires_grad
    }


def ties(part: nn.Module) -> dict[str, Tie]:
    """Names in `part` of weights that other pipeline stages hold too → who holds them. Set by `note_ties`, when the model is split."""
    found: dict[str, Tie] = part.__dict__.get("stage_ties", {})
    return found


def note_ties(part: nn.Module, found: dict[str, Tie]) -> None:
    """Let `ties` return `found`."""
    part.__dict__["stage_ties"] = found


@dataclass(frozen=True)
class Placed:
    """What `shard_manually` did to a parameter: its whole shape, its divisions, and the axis over which it is now replicated."""

    shape: tuple[int, ...]
    cuts: tuple[DimShard, ...]
    replicas: str


def manual_shards(module: nn.Module) -> dict[str, Placed]:
    """Parameter name in `module` → what `shard_manually` did to it."""
    return {
        f"{prefix}.{key}" if prefix else key: placed
        for prefix, owner in module.named_modules()
        for key, placed in getattr(owner, "manual_shards", {}).items()
    }


def shard_manually(owner: nn.Module, name: str, cut: DimShard, replicas: str = REPLICA) -> None:
    """Keep only this rank's part of the module's own parameter `name`, and record it in `owner.shard_manually` for `parameters`.

    The parameter stays a plain tensor: no DTensor is used on an axis of experts, whose mesh shares no parent with the others.
    """
    whole = owner.get_parameter(name)
    notes: dict[str, Placed] = owner.__dict__.setdefault("manual_shards", {})
    before = notes.get(name, Placed(tuple(whole.shape), (), replicas))
    own = narrow(whole.detach(), *slice_of(whole.shape, (cut,))).clone()
    owner.register_parameter(name, nn.Parameter(own, whole.requires_grad))
    notes[name] = Placed(before.shape, (*before.cuts, cut), replicas)


def _tensor_cuts(value: nn.Parameter, mesh: Mesh) -> tuple[DimShard, ...]:
    if not isinstance(value, DTensor):
        return ()
    (placement,) = value.placements
    if not isinstance(placement, Shard):
        return ()
    return (DimShard("tensor", placement.dim, mesh.size("tensor"), mesh.index("tensor")),)


def slice_of(shape: Sequence[int], cuts: Sequence[DimShard]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Offset and size of what remains of `shape` after `cuts`, applied in order."""
    offset, size = [0] * len(shape), list(shape)
    for cut in cuts:
        chunk = -(-size[cut.dim] // cut.parts)
        start = min(cut.index * chunk, size[cut.dim])
        offset[cut.dim] += start
        size[cut.dim] = min(chunk, size[cut.dim] - start)
    return tuple(offset), tuple(size)


def narrow(whole: torch.Tensor, offset: Sequence[int], size: Sequence[int]) -> torch.Tensor:
    """The slice of `whole` at `offset` with `size`, as a view."""
    for dim, (start, length) in enumerate(zip(offset, size, strict=True)):
        whole = whole.narrow(dim, start, length)
    return whole


def _at_least_1d(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(1) if tensor.dim() == 0 else tensor
