"""ZeRO stage 3: parameters, gradients and optimizer state sharded over the data axis by torch's `fully_shard` (1910.02054, section 5.3).

Memory per rank: 16Ψ/N bytes and a gathered block; in the forward pass `prefetch` more blocks with their experts, in the backward pass one
more and the gradients of `prefetch` blocks in transit. The 16Ψ/N bytes may be in host memory, or but for gradients on a disk
(`shards_on_disk.py`).
Traffic per step and micro-batch: 2Ψ(N−1)/N gathered and Ψ(N−1)/N reduce-scattered elements. On CPUs `fsdp_comm.py` lets them overlap.
With ZeRO++ `zero_plus_plus.py` makes these messages smaller.

Gathered values have the compute dtype. Gradients are always reduced in the master's dtype, which is that of the shards. Under a
pipeline, blocks stay gathered between forward and backward (pytorch issue 164756), because a schedule soon returns to them, and their
gradients are summed whole over the micro-batches, until a stage's last backward pass: 4Ψ bytes.
What a block is called with keeps its dtype, as in the other stages. Scalars, which cannot be sharded, are replicated, with fp32 masters.
Parts without a row are not passed to `fully_shard`. If one rank holds several stages of a pipeline with the same tied weight, such as an
embedding and its head, they are sharded and gathered separately; the first stage's shard takes all gradients, the others' are copies.

With sharding groups (HSDP; `layout.shard` = S of N replicas) S replaces N, and 2(Ψ/S)(N/S−1)/(N/S) are all-reduced between groups,
for 16Ψ/S bytes. If E ranks share the experts, they are Ψ/E on N/E replicas, of which max(1, S/E) in each group shard them further: by
their number, or by the second dimension if there are fewer than ranks to hold them.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard

from ..activation_memory.state_file import StateFile
from ..comm_overlap import Overlap
from ..layout import Refusal
from ..mesh import GROUPS, REPLICA, Mesh
from ..param_shard import DimShard, Parameter, ParamShard, Placed, parameters, ties, with_elements
from ..precision import Precision
from .ddp import DDP
from .fsdp_sums import WideSums
from .master_weights import Masters
from .shard_dim import shard_dim
from .shards_on_disk import ShardsOnDisk
from .zero_plus_plus import ShardCommunication


@dataclass(frozen=True)
class ShardPlace:
    """Where param shards are. `on_host`: in host memory, with gradients and the optimizer; the device holds one gathered block.

    `file`: the shards are in it, and only their gradients are in host memory.
    """

    on_host: bool = False
    file: StateFile | None = None


class FullyShard:
    """Shards each block, then the rest of its part.

    `fill(module)` writes a module's values just before it is sharded, so that no rank ever holds the whole model. Raises `Refusal` for
    blocks that share a parameter, `StateDiskError` if the file of `place` has no room, and later if it cannot be read.
    """

    def __init__(
        self,
        parts: Sequence[nn.Module],
        mesh: Mesh,
        precision: Precision,
        fill: Callable[[nn.Module], None],
        overlap: Overlap,
        place: ShardPlace,
    ) -> None:
        for part in parts:
            check_shared(part)
        whole = parameters(parts, mesh)
        uncut = {p.name for p in whole if not _can_be_cut(p.value)}
        dims = {p.name: _dim(p.value, _parts(p.replicas, mesh)) for p in whole}
        self._communication = ShardCommunication(mesh, overlap)
        self._sums = self._communication.sums
        self._disk = None if place.file is None else ShardsOnDisk(place.file)
        self._sharded: list[FSDPModule] = []
        for part in parts:
            for module in (*_manually_sharded(part, mesh), *blocks(part), part):
                self._sharded.append(_shard(module, mesh, precision, fill, place, self._communication))
                if self._disk is not None:
                    self._disk.keep(self._sharded[-1])
        self._wide = WideSums(self._sharded) if precision.mixed and mesh.size("pipeline") > 1 else None
        for part in parts:
            _prefetch(part, overlap.prefetch)
        now = _now(whole, parts)
        pairs = [(p, p.shard(p.local, _cut(p.replicas, mesh, dims[p.name]))) for p in now if p.name not in uncut]
        here: dict[str, ParamShard] = {}
        self._copies = [(p, here[p.name]) for p, shard in pairs if here.setdefault(p.name, shard) is not shard]
        copied = {p for p, _ in self._copies}
        self._pairs = [(p, shard) for p, shard in pairs if p not in copied]
        self._scalars = _replicated([p for p in now if not p.value.dim()], parts, mesh, precision, overlap)
        self.gradient_peak = 0
        empty = {p.name: p.shard(p.local) for p in now if p.name in uncut and p.value.dim()}
        found = {p.name: shard for p, shard in self._pairs} | empty
        in_order = [found[name] for name in dict.fromkeys(p.name for p in now) if name in found]
        self.all_shards = [*in_order, *self._scalars.all_shards]
        self.shards = with_elements(self.all_shards)

    def before_backward(self, last: bool) -> None:
        """Every micro-batch is reduced at once: whole gradients never exist, except for scalars."""
        self._scalars.before_backward(last)
        self._sums.settle()

    def collect(self) -> None:
        self._scalars.collect()
        if self._wide is not None:
            self._wide.collect()

    @contextmanager
    def finishing(self, values: Collection[nn.Parameter]) -> Iterator[None]:
        """Torch reduces a stage's gradients when its last backward pass, which runs inside, has run."""
        yield
        if self._wide is not None:
            self._wide.complete(values)

    def reduce(self) -> None:
        if self._disk is not None:
            self._disk.pause()
        self._scalars.reduce()
        self._sums.settle()
        for parameter, shard in self._pairs:
            shard.tensor.grad = _gradient(parameter, shard)
        for parameter, shard in self._copies:
            assert shard.tensor.grad is not None
            shard.tensor.grad.add_(_gradient(parameter, shard))
        held = sum(shard.tensor.grad.nbytes for shard in self.shards if shard.tensor.grad is not None)
        self.gradient_peak = max(self.gradient_peak, held)

    def publish(self) -> None:
        self._scalars.publish()
        self._communication.drop()
        for parameter, shard in self._pairs:
            parameter.value.grad = shard.tensor.grad = None
        for parameter, shard in self._copies:
            parameter.value.grad = None
            parameter.local.copy_(shard.tensor)
        if self._disk is not None:
            self._disk.resume()

    def settle(self) -> None:
        """Each block gathers its parameters when it needs them."""

    def after_validation(self) -> None:
        """Drop gathered parameters, which otherwise only a backward pass drops: they would be stale after the next update."""
        for module in self._sharded:
            module.reshard()


def check_shared(part: nn.Module) -> None:
    """Raise `Refusal` for a trained parameter of several blocks, or of a block and the rest: each would get a shard of its own."""
    units = [*blocks(part)]
    inside = {module for block in units for module in block.modules()}
    every = [block.parameters() for block in units]
    every += [module.parameters(recurse=False) for module in part.modules() if module not in inside]
    seen: dict[nn.Parameter, int] = {}
    for number, values in enumerate(every):
        unit = min(number, len(units))  # what is in no block is sharded together
        for value in values:
            if seen.setdefault(value, unit) != unit and value.requires_grad and _can_be_cut(value):
                first, *_, last = [name for name, of in part.named_parameters(remove_duplicate=False) if of is value]
                raise Refusal(
                    "layout.zero",
                    f"{first} and {last} of {type(part).__name__} are one parameter, and ZeRO-3 shards each block by itself.",
                    "Keep it in a module outside the blocks, or set layout.zero to 2.",
                )


def _now(whole: Sequence[Parameter], parts: Sequence[nn.Module]) -> list[Parameter]:
    """The parameters `whole` with the values by which `fully_shard` has replaced theirs."""
    # In the order of parts: of a tied weight each part has a value of its own.
    values: dict[str, list[nn.Parameter]] = {}
    for part in parts:
        tied = ties(part)
        for own, value in part.named_parameters():
            values.setdefault(tied[own].name if own in tied else own, []).append(value)
    return [replace(p, value=values[p.name].pop(0)) for p in whole]


def _replicated(
    scalars: Sequence[Parameter], parts: Sequence[nn.Module], mesh: Mesh, precision: Precision, overlap: Overlap
) -> DDP:
    """Data parallelism for the trained scalars of `parts`. Their gradients are summed in the master's dtype, as those of shards are."""
    masters = Masters(mesh, precision)
    for parameter in scalars:
        masters.keep(parameter, parameter.local)
    for part in parts:
        round_scalars(part, precision.compute)
    return DDP(scalars, mesh, replace(precision, wide_gradients=True), overlap, masters)


def round_scalars(part: nn.Module, dtype: torch.dtype) -> None:
    """Give scalars, frozen ones too, the compute dtype. They stay the same objects, which several blocks may have."""
    for value in part.parameters():
        if value.dim() or value.dtype == dtype or not value.is_floating_point():
            continue
        if isinstance(value, DTensor):
            torch.utils.swap_tensors(value, nn.Parameter(value.detach().to(dtype), value.requires_grad))
        else:
            value.data = value.data.to(dtype)


def _can_be_cut(value: nn.Parameter) -> bool:
    """Whether the value is neither a scalar nor empty: the tensor axis may leave some ranks none of a few rows."""
    own = value.to_local() if isinstance(value, DTensor) else value
    return value.dim() > 0 and own.numel() > 0


def _round_the_empty(module: nn.Module, dtype: torch.dtype) -> None:
    """Give parts without a row the compute dtype: torch casts only what it gathers."""
    for owner in module.modules():
        for key, value in list(owner.named_parameters(recurse=False)):
            if value.dim() and not _can_be_cut(value):
                owner.register_parameter(key, nn.Parameter(value.detach().to(dtype), value.requires_grad))


def _gradient(parameter: Parameter, shard: ParamShard) -> torch.Tensor:
    grad = parameter.value.grad
    assert grad is None or isinstance(grad, DTensor)
    own = torch.zeros_like(shard.tensor) if grad is None else grad.to_local()
    return own.view_as(shard.tensor)


def _cut(replicas: str, mesh: Mesh, dim: int) -> DimShard:
    axis = _axis(replicas, mesh)
    return DimShard(axis, dim, mesh.size(axis), mesh.index(axis))


def _axis(replicas: str, mesh: Mesh) -> str:
    return GROUPS[replicas][1] if replicas in mesh.hybrid else replicas


def _parts(replicas: str, mesh: Mesh) -> int:
    return mesh.size(_axis(replicas, mesh))


def _dim(value: nn.Parameter, parts: int) -> int:
    """The dimension that is sharded; of what the tensor axis has sharded the first."""
    return 0 if isinstance(value, DTensor) else shard_dim(value.shape, parts)


def _manually_sharded(part: nn.Module, mesh: Mesh) -> Iterator[nn.Module]:
    """Modules whose parameters have replicas of their own: distributed experts. They are sharded apart from their block."""
    if mesh.layout.expert > 1:
        yield from (module for module in part.modules() if hasattr(module, "manual_shards"))


def _replicas(module: nn.Module) -> str:
    placed: dict[str, Placed] = getattr(module, "manual_shards", {})
    return next((p.replicas for p in placed.values()), REPLICA)


def _shard(
    module: nn.Module,
    mesh: Mesh,
    precision: Precision,
    fill: Callable[[nn.Module], None],
    place: ShardPlace,
    communication: ShardCommunication,
) -> FSDPModule:
    fill(module)
    policy, replicas = MixedPrecisionPolicy(), _replicas(module)
    pinned = mesh.device.type == "cuda" and place.file is None  # torch would copy a mapping to pinned memory
    if precision.mixed:
        _round_the_empty(module, precision.compute)
        # The other stages cast no argument of a block either: a mask of the least fp32 numbers would become -inf.
        policy = MixedPrecisionPolicy(precision.compute, precision.master, cast_forward_inputs=False)
    parts = _parts(replicas, mesh)
    by_second = any(_dim(value, parts) for value in module.parameters())
    owned = [value for value in dict.fromkeys(_owned(module)) if _can_be_cut(value)]
    sizes = [_shard_size(value, parts) for value in owned]
    trained = [size for size, value in zip(sizes, owned, strict=True) if value.requires_grad]
    del owned  # the whole values
    shard = fully_shard(
        module,
        shard_placement_fn=(lambda value: Shard(_dim(value, parts))) if by_second else None,
        mesh=mesh.hybrid[replicas] if mesh.hybrid else mesh.device_mesh(replicas),
        mp_policy=policy,
        offload_policy=CPUOffloadPolicy(pin_memory=pinned) if place.on_host else OffloadPolicy(),
        reshard_after_forward=mesh.size("pipeline") == 1,
        ignored_params={value for value in module.parameters() if not _can_be_cut(value)},
    )
    assert isinstance(shard, FSDPModule)
    # The loss is already divided by the global token count: gradients are summed.
    shard.set_gradient_divide_factor(1.0)
    shard.set_force_sum_reduction_for_comms(True)
    communication.set_on(shard, sizes, trained)
    return shard


def _owned(module: nn.Module) -> Iterator[nn.Parameter]:
    """The parameters that no module inside shards, in the order in which torch sends them: those of children first."""
    for child in module.children():
        if not isinstance(child, FSDPModule):
            yield from _owned(child)
    yield from module.parameters(recurse=False)


def _shard_size(value: nn.Parameter, parts: int) -> int:
    """Numbers of a rank's shard as it is sent: all are padded to the largest."""
    own = value.to_local() if isinstance(value, DTensor) else value
    rows = own.shape[_dim(value, parts)]
    return -(-rows // parts) * (own.numel() // rows)


def _prefetch(part: nn.Module, depth: int) -> None:
    """Let each block, and the part itself, request the `depth` blocks after it before it computes; in the backward pass one module.

    A block is requested with what is sharded apart inside it, its distributed experts, and requests its own first.
    """
    units = [[unit for unit in block.modules() if isinstance(unit, FSDPModule)] for block in blocks(part)]
    assert isinstance(part, FSDPModule)
    for number, (module, *inside) in enumerate([[part], *units]):
        ahead = [one for unit in units[number : number + depth] for one in unit]
        module.set_modules_to_forward_prefetch([*inside, *ahead])


def blocks(module: nn.Module) -> Iterator[nn.Module]:
    """The repeated blocks of a model: the children of its `blocks`, which a pipeline divides, else of its first container of modules.

    Not those that are containers themselves: nothing calls them.
    """
    named = dict(module.named_children())
    for child in (named.get("blocks"), *named.values()):
        if isinstance(child, nn.ModuleList | nn.ModuleDict | nn.Sequential):
            yield from (block for block in child.children() if type(block).forward is not nn.Module.forward)
            return
