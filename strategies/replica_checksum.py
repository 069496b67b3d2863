"""Compares state that must be identical on several ranks: replicas, and what tensor parallelism leaves whole.

State is replicas of parameters, frozen ones too, and of optimizer state. Nothing else in training compares them: a bit that flips in
one replica's memory stays, and spreads with its gradients. So each rank adds up the words of every slice that others hold too (a
change of any one word changes the sum), and compares the sums with theirs. Frozen shards of ZeRO-3 are left out.

Time: each byte is read once. Traffic per axis: two 8-byte numbers per slice, all-reduced (their largest and their smallest); then
one number over the world, since all ranks must have the result. Ranks exchange more only if something differs.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
import torch.distributed as dist
from torch import nn

from .mesh import GROUPS, Mesh
from .param_shard import Parameter, ParamShard, parameters, slice_of
from .telemetry.current import wait_on

#: Identifies a slice: name, kind of number, offset and size.
Place = tuple[str, str, tuple[int, ...], tuple[int, ...]]
_WORDS: Final = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.int8}


@dataclass(frozen=True)
class ReplicatedSlice:
    """A tensor of which ranks along the mesh `axes` hold the same bits."""

    place: Place
    tensor: torch.Tensor
    axes: tuple[str, ...]


@dataclass(frozen=True)
class ReplicaMismatch:
    """Parts of the training state that differ between ranks, but must not. `ranks`: the minority, or all that differ if there is none."""

    names: tuple[str, ...]
    ranks: tuple[int, ...]
    certain: bool


def replicated_slices(parts: Sequence[nn.Module], shards: Sequence[ParamShard], mesh: Mesh) -> list[ReplicatedSlice]:
    """Every slice of this rank's state that other ranks hold too, in the same order on all of them."""
    found = [_of_shard(shard, mesh) for shard in shards]
    if mesh.layout.zero < 3:  # in stage 3 the param shards are the parameters
        found += [_of_parameter(parameter, mesh) for parameter in parameters(parts, mesh, frozen=True)]
    once = {(r.tensor.data_ptr(), r.place): r for r in found if r.axes and r.tensor.numel()}
    return list(once.values())


def _of_shard(shard: ParamShard, mesh: Mesh) -> ReplicatedSlice:
    between, inside = GROUPS[shard.replicas]
    replicas = between if inside in shard.axes else shard.replicas
    place = (shard.name, str(shard.tensor.dtype), shard.offset, tuple(shard.tensor.shape))
    return ReplicatedSlice(place, shard.tensor, _shared((replicas, *mesh.tensor_axes), shard.axes, mesh))


def _of_parameter(parameter: Parameter, mesh: Mesh) -> ReplicatedSlice:
    offset, size = slice_of(parameter.shape, parameter.cuts)
    cut = frozenset(cut.axis for cut in parameter.cuts)
    place = (parameter.name, str(parameter.local.dtype), offset, size)
    return ReplicatedSlice(place, parameter.local, _shared((parameter.replicas, *mesh.tensor_axes), cut, mesh))


def _shared(axes: Sequence[str], cut: frozenset[str], mesh: Mesh) -> tuple[str, ...]:
    return tuple(axis for axis in axes if axis not in cut and mesh.size(axis) > 1)


@torch.no_grad()
def find_mismatch(slices: Sequence[ReplicatedSlice], mesh: Mesh) -> ReplicaMismatch | None:
    """The parts in which ranks hold different bits, or None; the same answer on all ranks. Collective over the world."""
    # Each on the mesh's device: offloaded state is on the host.
    each = [checksum(r.tensor).to(mesh.device) for r in slices]
    sums = torch.stack(each) if each else torch.empty(0, dtype=torch.int64, device=mesh.device)
    odd = torch.zeros(len(slices), dtype=torch.bool, device=mesh.device)
    for axis in sorted({axis for r in slices for axis in r.axes}):
        here = torch.tensor([axis in r.axes for r in slices], device=mesh.device)
        odd[here] |= differs(sums[here], mesh.group(axis))
    somewhere = odd.any().to(torch.int64).reshape(1)
    wait_on(lambda: dist.all_reduce(somewhere, dist.ReduceOp.MAX), "all_reduce")
    if not somewhere.item():
        return None
    mine = {r.place: int(one) for r, one, is_odd in zip(slices, sums.tolist(), odd.tolist(), strict=True) if is_odd}
    everyone: list[dict[Place, int]] = [{}] * dist.get_world_size()
    wait_on(lambda: dist.all_gather_object(everyone, mine), "all_gather")
    return named(everyone)


def differs(sums: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """For each of `sums` whether it differs within `group`: the largest is not the smallest. Collective over the group."""
    extremes = torch.stack([sums, ~sums])  # ~x = −x − 1 reverses the order, and never overflows
    wait_on(lambda: dist.all_reduce(extremes, dist.ReduceOp.MAX, group=group), "all_reduce", group)
    return extremes[0] != ~extremes[1]


def checksum(tensor: torch.Tensor) -> torch.Tensor:
    """The sum of the tensor's 8-byte words modulo 2⁶⁴; of its elements' own words if its size is no multiple of 8 bytes."""
    flat = tensor.detach().resolve_conj().resolve_neg().reshape(-1).contiguous()
    if flat.nbytes % 8:
        return flat.view(_WORDS[flat.element_size()]).sum(dtype=torch.int64)
    if flat.storage_offset() * flat.element_size() % 8:
        flat = flat.clone()
    return flat.view(torch.int64).sum()


def named(everyone: Sequence[dict[Place, int]]) -> ReplicaMismatch:
    """Which ranks differ in which parts: `everyone` holds, by rank, the sums of the parts that differ on some rank.

    The minority are the ranks that differ from the majority in some slice. If no slice has a majority, all of them are returned.
    """
    votes: dict[Place, dict[int, int]] = defaultdict(dict)
    for rank, sums in enumerate(everyone):
        for place, one in sums.items():
            votes[place][rank] = one
    minority, all_of_them = set[int](), set[int]()
    for by_rank in votes.values():
        (most, count), *others = Counter(by_rank.values()).most_common()
        all_of_them |= set(by_rank)
        if others and count > others[0][1]:
            minority |= {rank for rank, one in by_rank.items() if one != most}
    names = tuple(dict.fromkeys(place[0] for place in votes))
    return ReplicaMismatch(names, tuple(sorted(minority or all_of_them)), bool(minority))
