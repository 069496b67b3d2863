"""The mesh: every rank's place on the axes, with a process group per axis.

Ranks of one tensor group are neighbours, then those of one context group, then of one data group:
`rank = ((pipeline · D + data) · C + context) · T + tensor`. Gradients are summed over *replicas*, the data and context axes together.
The context axis is `context = ring · U + ulysses`: Ulysses' all-to-all stays among neighbours, the ring goes outside.
Experts divide the replicas once more: neighbouring replicas form an expert group, among which a layer's experts are spread, and
`replica = expert replica · E + expert`; an expert's gradient is summed over its expert replicas only.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from .layout import Layout

#: Data × context: the ranks that hold the same parameters and see different tokens.
REPLICA = "replica"
#: The ranks that hold the same experts: replicas ÷ expert.
EXPERT_REPLICA = "expert_replica"
#: HSDP: replicas among which parameters are cut (neighbours), and those of different groups that hold the same cut.
SHARD, SHARD_REPLICA = "shard", "shard_replica"


@dataclass(frozen=True)
class Mesh:
    """A layout on the running process group. `device` is where this rank computes; `axes` are one-dimensional."""

    layout: Layout
    device: torch.device
    axes: Mapping[str, DeviceMesh]
    hybrid: DeviceMesh | None = None  # SHARD_REPLICA × SHARD, where the layout has groups that shard

    def size(self, axis: str) -> int:
        return self.axes[axis].size()

    def index(self, axis: str) -> int:
        """This rank's coordinate on `axis`."""
        return self.axes[axis].get_local_rank()

    def group(self, axis: str) -> dist.ProcessGroup:
        return self.axes[axis].get_group()

    def axis(self, axis: str) -> DeviceMesh:
        return self.axes[axis]


def make_mesh(layout: Layout, device: torch.device) -> Mesh:
    """Form the groups of every axis. Collective over the world, whose size must be the layout's."""
    if dist.get_world_size() != layout.world_size:
        raise ValueError(
            f"layout {layout} needs {layout.world_size} ranks, the process group has {dist.get_world_size()}"
        )
    degrees = layout.degrees
    outer = {
        "pipeline": degrees["pipeline"],
        REPLICA: degrees["data"] * degrees["context"],
        "tensor": degrees["tensor"],
    }
    axes = _axes(outer, device)
    hybrid = None
    if layout.shard is not None:
        # DTensors of the tensor axis need the mesh that cuts them further to have the same parent.
        spread = {
            "pipeline": degrees["pipeline"],
            SHARD_REPLICA: axes[REPLICA].size() // layout.shard,
            SHARD: layout.shard,
            "tensor": degrees["tensor"],
        }
        parent = init_device_mesh(device.type, tuple(spread.values()), mesh_dim_names=tuple(spread))
        axes |= {name: parent[name] for name in spread}
        hybrid = parent[SHARD_REPLICA, SHARD]
    if degrees["context"] == 1:
        axes["data"] = axes[REPLICA]
    else:
        axes |= _context_axes(layout, device)
    if layout.expert == 1:
        axes[EXPERT_REPLICA] = axes[REPLICA]
    else:
        groups = axes[REPLICA].size() // layout.expert
        spread = {
            "outer": degrees["pipeline"],
            EXPERT_REPLICA: groups,
            "expert": layout.expert,
            "inner": degrees["tensor"],
        }
        inner = _axes(spread, device)
        axes |= {EXPERT_REPLICA: inner[EXPERT_REPLICA], "expert": inner["expert"]}
    return Mesh(layout, device, axes, hybrid)


def _context_axes(layout: Layout, device: torch.device) -> dict[str, DeviceMesh]:
    """The axes inside the replicas: data and context, and the two that divide context."""
    outer = layout.pipeline * layout.data
    halves = {"outer": outer, "context": layout.context, "inner": layout.tensor}
    around = {"outer": layout.pipeline, "data": layout.data, "inner": layout.context * layout.tensor}
    inside = {"outer": outer, "ring": layout.ring, "ulysses": layout.ulysses, "inner": layout.tensor}
    found = {name: mesh for shape in (halves, around, inside) for name, mesh in _axes(shape, device).items()}
    return {name: found[name] for name in ("data", "context", "ring", "ulysses")}


def _axes(shape: Mapping[str, int], device: torch.device) -> dict[str, DeviceMesh]:
    mesh = init_device_mesh(device.type, tuple(shape.values()), mesh_dim_names=tuple(shape))
    return {name: mesh[name] for name in shape}
