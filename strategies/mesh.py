"""The mesh: every rank's coordinates on the axes, with a process group per axis.

Ranks of one tensor group are neighbours, then those of one context group, then of one data group:
`rank = ((pipeline · D + data) · C + context) · T + tensor`. Gradients are summed over *replicas*, the data and context axes together.

The context axis is `context = ring · U + ulysses`: Ulysses' all-to-all stays among neighbours, the ring connects the groups.

Experts divide the replicas once more: neighbouring replicas form an expert group, over which a layer's experts are distributed, and
`replica = expert replica · E + expert`. An expert's gradient is summed over its expert replicas only.

With sharding groups (HSDP) the neighbouring replicas of a group shard what they would hold in common, and groups sum: `replica =
group · S + place`. Of a group's S replicas S/E hold the same experts (at least one), and shard them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from .layout import Layout

#: Data × context: the ranks that hold the same parameters and see different tokens.
REPLICA = "replica"
#: The ranks that hold the same experts: replicas ÷ expert.
EXPERT_REPLICA = "expert_replica"
#: HSDP: replicas among which parameters are sharded (neighbours), and replicas of different groups that hold the same shard.
SHARD, SHARD_REPLICA = "shard", "shard_replica"
#: The same for distributed experts.
EXPERT_SHARD, EXPERT_SHARD_REPLICA = "expert_shard", "expert_shard_replica"
#: Axis over which a parameter is replicated → the two axes that sharding groups make of it: among groups, and inside.
GROUPS = {REPLICA: (SHARD_REPLICA, SHARD), EXPERT_REPLICA: (EXPERT_SHARD_REPLICA, EXPERT_SHARD)}


@dataclass(frozen=True)
class Mesh:
    """A layout on the running process group. `device` is where this rank computes; `axes` are one-dimensional."""

    layout: Layout
    device: torch.device
    axes: Mapping[str, DeviceMesh]
    hybrid: Mapping[str, DeviceMesh] = field(
        default_factory=dict
    )  # axis → its `GROUPS`, if the layout has sharding groups

    def size(self, axis: str) -> int:
        return self.axes[axis].size()

    def index(self, axis: str) -> int:
        """This rank's coordinate on `axis`."""
        return self.axes[axis].get_local_rank()

    @property
    def part(self) -> int:
        """Number of this rank's share of a step's work: ranks with the same number do equal work, though on other tokens or columns."""
        experts = self.layout.expert
        return self.index("pipeline") * experts + (self.index("expert") if experts > 1 else 0)

    def group(self, axis: str) -> dist.ProcessGroup:
        return self.axes[axis].get_group()

    def axis(self, axis: str) -> DeviceMesh:
        return self.axes[axis]


def make_mesh(layout: Layout, device: torch.device) -> Mesh:
    """Form the groups of every axis. Collective over the world; raises `ValueError` if its size is not the layout's."""
    if dist.get_world_size() != layout.world_size:
        raise ValueError(
            f"layout {layout} needs {layout.world_size} ranks, but the process group has {dist.get_world_size()}"
        )
    outer = {"pipeline": layout.pipeline, REPLICA: layout.data * layout.context, "tensor": layout.tensor}
    axes = _axes(outer, device)
    axes |= dict.fromkeys(("data", EXPERT_REPLICA), axes[REPLICA])
    if layout.context > 1:
        axes |= _context_axes(layout, device)
    if layout.expert > 1:
        axes |= _expert_axes(layout, device)
    if layout.shard is None:
        return Mesh(layout, device, axes)
    parents = _parents_of_groups(layout, layout.shard, device)
    # DTensors of the tensor axis need the same parent mesh as the axes that shard them further.
    axes |= {name: parents[REPLICA][name] for name in ("pipeline", *GROUPS[REPLICA], "tensor")}
    axes |= {name: parents[axis][name] for axis in parents for name in GROUPS[axis]}
    return Mesh(layout, device, axes, {axis: parent[GROUPS[axis]] for axis, parent in parents.items()})


def _parents_of_groups(layout: Layout, shard: int, device: torch.device) -> dict[str, DeviceMesh]:
    """Axis over which parameters are replicated → the mesh of the world that has the two axes of its `GROUPS`."""
    groups = layout.data * layout.context // shard
    spread = {"pipeline": layout.pipeline, SHARD_REPLICA: groups, SHARD: shard, "tensor": layout.tensor}
    parents = {REPLICA: _mesh(spread, device)}
    if layout.expert > 1:
        alike = max(1, shard // layout.expert)  # ranks of a group that hold the same experts
        between = layout.data * layout.context // layout.expert // alike
        inner = {"expert": layout.expert, "tensor": layout.tensor}
        spread = {"pipeline": layout.pipeline, EXPERT_SHARD_REPLICA: between, EXPERT_SHARD: alike, **inner}
        parents[EXPERT_REPLICA] = _mesh(spread, device)
    return parents


def _expert_axes(layout: Layout, device: torch.device) -> dict[str, DeviceMesh]:
    """The axes inside the replicas: expert groups of neighbours, and the replicas of each expert."""
    groups = layout.data * layout.context // layout.expert
    spread = {"outer": layout.pipeline, EXPERT_REPLICA: groups, "expert": layout.expert, "inner": layout.tensor}
    found = _axes(spread, device)
    return {name: found[name] for name in (EXPERT_REPLICA, "expert")}


def _context_axes(layout: Layout, device: torch.device) -> dict[str, DeviceMesh]:
    """The axes inside the replicas: data and context, and the two that make up context."""
    outer = layout.pipeline * layout.data
    halves = {"outer": outer, "context": layout.context, "inner": layout.tensor}
    around = {"outer": layout.pipeline, "data": layout.data, "inner": layout.context * layout.tensor}
    inside = {"outer": outer, "ring": layout.ring, "ulysses": layout.ulysses, "inner": layout.tensor}
    found = {name: mesh for shape in (halves, around, inside) for name, mesh in _axes(shape, device).items()}
    return {name: found[name] for name in ("data", "context", "ring", "ulysses")}


def _axes(shape: Mapping[str, int], device: torch.device) -> dict[str, DeviceMesh]:
    mesh = _mesh(shape, device)
    return {name: mesh[name] for name in shape}


def _mesh(shape: Mapping[str, int], device: torch.device) -> DeviceMesh:
    return init_device_mesh(device.type, tuple(shape.values()), mesh_dim_names=tuple(shape))
