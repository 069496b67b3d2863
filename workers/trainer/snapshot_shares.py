"""Which slices a rank's snapshots hold: of a slice that several replicas hold, one replica keeps it, and a restore sends it to the others.

Rules that it keeps: every slice is in the snapshots of one replica; the bytes are spread evenly over the replicas; all replicas compute
the same owners, without a message.

Replicas have the same bits, so that a restored rank has those that it had. What only tensor ranks hold in common, such as norms, each of
them keeps: it is small.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed as dist

from ...strategies.mesh import GROUPS, Mesh
from ...strategies.param_shard import ParamShard
from ...strategies.telemetry.current import wait_on


@dataclass(frozen=True)
class _Replicated:
    """A slice of which the ranks along mesh axis `axis` have the same bits; the one with index `owner` keeps it."""

    shard: ParamShard
    axis: str
    owner: int


class SnapshotShares:
    """One rank's `shards`, divided among its replicas. `kept` has all of them, those that other replicas keep without content."""

    def __init__(self, shards: Sequence[ParamShard], mesh: Mesh) -> None:
        self._mesh, self.shards = mesh, shards
        self._replicated = _spread(shards, mesh)
        others = {id(one.shard) for one in self._replicated if one.owner != mesh.index(one.axis)}
        self.kept = [shard.like(shard.name, shard.tensor[:0]) if id(shard) in others else shard for shard in shards]

    @torch.no_grad()
    def complete(self) -> None:
        """Give every replica the slices that another one has restored. Collective among replicas."""
        for one in self._replicated:
            _broadcast(one.shard.tensor, one, self._mesh)


def _broadcast(tensor: torch.Tensor, one: _Replicated, mesh: Mesh) -> None:
    group = mesh.group(one.axis)
    sent = tensor.to(mesh.device).contiguous()  # the tensor itself, unless it is offloaded to the host
    source = dist.get_global_rank(group, one.owner)
    words = sent.view(-1).view(torch.uint8)  # bytes: a backend need not know the type
    wait_on(partial(dist.broadcast, words, source, group=group), "broadcast", one.axis)
    if sent is not tensor:
        tensor.copy_(sent)


def _spread(shards: Sequence[ParamShard], mesh: Mesh) -> list[_Replicated]:
    """The owner of each slice that replicas share: the one with the fewest bytes so far."""
    counts: dict[str, list[int]] = {}
    found = []
    for shard in shards:
        axis = _axis(shard)
        if axis in shard.axes or mesh.size(axis) == 1 or not shard.tensor.numel():
            continue
        held = counts.setdefault(axis, [0] * mesh.size(axis))
        owner = held.index(min(held))
        held[owner] += shard.tensor.nbytes
        found.append(_Replicated(shard, axis, owner))
    return found


def _axis(shard: ParamShard) -> str:
    """The axis along which data strategies leave whole copies of the shard; one of `shard.axes` if there are none."""
    between, inside = GROUPS[shard.replicas]
    return between if inside in shard.axes else shard.replicas
