"""The mesh: every rank's coordinates on the axes, with a process group per axis.

Ranks of one tensor group are neighbours, then those of one context group, then of one data group:
`rank = ((pipeline · D + data) · C + context) · T + tensor`. Gradients are summed over *replicas*, the data and context axes together.

The context axis is `context = ring · U + ulysses`: Ulysses' all-to-all stays among neighbours, the ring connects the groups. With
`context_inner: ring` it is `ulysses · R + ring`. A double ring has two axes in the place of one: `ring = window · I + place`.

Experts divide the replicas once more: neighbouring replicas form an expert group, over which a layer's experts are distributed, and
`replica = expert replica · E + expert`. An expert's gradient is summed over its expert replicas only.

With ZeRO++ the replicas over which ZeRO shards fall into groups of neighbours once more: those of a secondary shard, and those of a
node, `replica = node · q + place`, over which and across which quantised gradients are summed.

With sharding groups (HSDP) the neighbouring replicas of a group shard what they would hold in common, and groups sum: `replica =
group · S + place`. Of a group's S replicas S/E hold the same experts (at least one), and shard them.

The tensor axis may be a grid of rows and columns: `tensor = row · q + column`. The ranks of a column differ in their row. With a depth
it is d such grids, `tensor = (depth · q + row) · q + column`, which hold the same parameters: they are the innermost replicas, so that
`replica = (data · C + context) · d + depth`.

It may be a cube, too: `tensor = (depth · l + row) · l + column`, whose ranks hold different parameters.

A group is formed for an axis of more than one rank, in one call. Axes of one purpose that have the same ranks share it. Those of replicas
have the world's if they have all ranks; on gloo, which does not run what a group has started in order, others have it too. For an axis of
one rank nothing is formed, and nothing is sent.

Beside the pipeline's group there is one for each pair of neighbours in it, for messages between stages: over one group a receive that is
posted early would hold up later sends. Not on gloo, and not for two ranks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from .context_axes import context_axes
from .layout import Layout, Refusal
from .process_groups import group_of_mine, group_of_one, pairs_of_mine, reduces, runs_in_order
from .zero_plus_plus_axes import zero_plus_plus_axes

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
#: ZeRO++: replicas that share a second shard of the weights, those of a node, and those of all nodes that have the same place in theirs.
SECONDARY, NODE, NODES = "secondary", "node", "nodes"
#: A grid of tensor ranks: the axes along which the row, and the column, of a rank is counted; and which grid it is, of several. In a cube:
#: the three axes.
TENSOR_DEPTH, TENSOR_ROW, TENSOR_COLUMN = "tensor_depth", "tensor_row", "tensor_column"
#: The axes over which gradients are summed and parameters gathered.
_REPLICAS: Final = (REPLICA, EXPERT_REPLICA, *GROUPS[REPLICA], *GROUPS[EXPERT_REPLICA], SECONDARY, NODE, NODES)
#: Axes of one purpose, which share a group if they have the same ranks. Over the data axis nothing is sent if it has fewer than replicas.
_PURPOSES: Final = (
    ("pipeline",),
    _REPLICAS,
    ("tensor", TENSOR_DEPTH, TENSOR_ROW, TENSOR_COLUMN),
    ("context", "ring", "inner_ring", "outer_ring", "ulysses"),
    ("expert",),
)
#: The axes over which ZeRO-3 shards. Torch needs them as meshes, also those of one rank.
_SHARDING: Final = frozenset({REPLICA, EXPERT_REPLICA, SHARD, EXPERT_SHARD})

#: All ranks of a layout with parameter servers: between workers and servers messages travel over it.
SERVER: Final = "parameter_server"

#: How many ranks an axis has, and how far apart their numbers are.
Span = tuple[int, int]


@dataclass(frozen=True)
class Axis:
    """An axis of the mesh. `index` is this rank's coordinate. `group` is None if nothing is sent over it."""

    size: int
    index: int
    group: dist.ProcessGroup | None


@dataclass(frozen=True)
class Mesh:
    """A layout on the running process group. `device` is where this rank computes."""

    layout: Layout
    device: torch.device
    axes: Mapping[str, Axis]
    device_meshes: Mapping[
        str, DeviceMesh
    ]  # for torch, one-dimensional: the tensor axis and those over which ZeRO-3 shards, or a grid's columns
    hybrid: Mapping[str, DeviceMesh] = field(
        default_factory=dict
    )  # axis → its `GROUPS` of more than one rank, if the layout has sharding groups
    reduces: bool = False  # whether the backend has a reduce-scatter that is worth it: see `collectives.py`
    pairs: Mapping[int, dist.ProcessGroup] = field(
        default_factory=dict
    )  # rank of the world → the group of this rank and it, neighbours in a pipeline; empty where the pipeline's group has their messages

    def size(self, axis: str) -> int:
        return self.axes[axis].size

    def index(self, axis: str) -> int:
        """This rank's coordinate on `axis`."""
        return self.axes[axis].index

    @property
    def tensor_axes(self) -> tuple[str, ...]:
        """The axes that divide parameters by tensor parallelism."""
        if self.layout.tensor_shape is None:
            return ("tensor",)
        return (TENSOR_ROW, TENSOR_COLUMN) if _has_grids(self.layout) else (TENSOR_DEPTH, TENSOR_ROW, TENSOR_COLUMN)

    @property
    def part(self) -> int:
        """Number of this rank's share of a step's work: ranks with the same number do equal work, though on other tokens or columns."""
        if self.serves:
            return self.layout.part(self.index(SERVER))
        return self.index("pipeline") * self.layout.expert + self.index("expert")

    @property
    def serves(self) -> bool:
        """Whether this rank is a parameter server: it has no model, and is the only rank of every axis but `SERVER`."""
        return self.layout.servers > 0 and self.index(SERVER) >= self.layout.data

    def group(self, axis: str) -> dist.ProcessGroup:
        """The axis' group. Raises `ValueError` for an axis over which nothing is sent."""
        group = self.axes[axis].group
        if group is None:
            raise ValueError(f"the {axis} axis of {self.layout} has no process group: nothing is sent over it")
        return group

    def device_mesh(self, axis: str) -> DeviceMesh:
        return self.device_meshes[axis]


def make_mesh(layout: Layout, device: torch.device, limit: timedelta | None = None) -> Mesh:
    """Form the groups of every axis. Collective over the world. `limit`: how long a collective may take, as on the world's group.

    Raises `ValueError` if its size is not the layout's, and `Refusal` for parameter servers on GPUs.
    """
    if dist.get_world_size() != layout.world_size:
        raise ValueError(
            f"layout {layout} needs {layout.world_size} ranks, but the process group has {dist.get_world_size()}"
        )
    if layout.servers:
        return Mesh(layout, device, _axes_with_servers(layout, device, limit), {}, reduces=reduces())
    axes, pairs = _axes(layout, limit), _pairs(layout, limit)
    if layout.tensor_shape is not None:  # whose parameters are plain tensors, and its logits DTensors
        columns = {TENSOR_COLUMN: _alone(axes[TENSOR_COLUMN], device)}
        return Mesh(layout, device, axes, columns, reduces=reduces(), pairs=pairs)
    # DTensors of the tensor axis need the same parent mesh as the axes that shard them further.
    parents = {REPLICA: _parent(_split(REPLICA, layout), axes, layout, device)}
    if layout.expert > 1 and layout.zero == 3:
        parents[EXPERT_REPLICA] = _parent((*_split(EXPERT_REPLICA, layout), "expert"), axes, layout, device)
    meshes = {name: parent[name] for parent in reversed(parents.values()) if parent for name in _names(parent)}
    hybrid = {axis: _within(parent, GROUPS[axis]) for axis, parent in parents.items() if parent and layout.shard}
    return Mesh(layout, device, axes, meshes, hybrid, reduces(), pairs)


def _split(replicas: str, layout: Layout) -> tuple[str, ...]:
    """The axes that make up `replicas`."""
    return GROUPS[replicas] if layout.shard else (replicas,)


def _axes(layout: Layout, limit: timedelta | None) -> dict[str, Axis]:
    """The axes with their groups. Every rank forms them in the same order."""
    spans = _spans(layout)
    used = spans.keys() - ({TENSOR_DEPTH} if _has_grids(layout) else set())  # replicas send over the depth of grids
    groups: dict[str, dist.ProcessGroup | None] = {}
    for purpose in _PURPOSES:
        formed: dict[Span, dist.ProcessGroup | None] = {}
        for axis in filter(used.__contains__, purpose):
            if spans[axis] not in formed:
                formed[spans[axis]] = _group(axis, spans[axis], limit)
            groups[axis] = formed[spans[axis]]
    if spans["data"] == spans[REPLICA]:
        groups["data"] = groups[REPLICA]
    rank = dist.get_rank()
    return {axis: Axis(size, rank // stride % size, groups.get(axis)) for axis, (size, stride) in spans.items()}


def _has_grids(layout: Layout) -> bool:
    return layout.tensor_shape is not None and layout.tensor_shape.mode != "3d"


def _axes_with_servers(layout: Layout, device: torch.device, limit: timedelta | None) -> dict[str, Axis]:
    """The axes of a worker, or of a server, which is alone on each of them; and the axis of all ranks. Raises `Refusal`."""
    if device.type != "cpu":
        raise Refusal(
            "layout.parameter_server",
            f"workers and servers exchange messages over gloo, on CPUs, and this rank is on {device.type}.",
            "Run it on CPUs, or leave layout.parameter_server out.",
        )
    rank, world = dist.get_rank(), range(layout.world_size)
    group = group_of_mine([world[: layout.data], world[layout.data :]], f"mesh_{REPLICA}", limit)
    serves = rank >= layout.data
    axes = {SERVER: Axis(layout.world_size, rank, dist.group.WORLD)}
    for axis, (size, stride) in _spans(layout).items():
        alone = serves or size == 1
        axes[axis] = Axis(1, 0, None) if alone else Axis(size, rank // stride % size, group)
    return axes


def _spans(layout: Layout) -> dict[str, Span]:
    data, context, tensor, expert = layout.data, layout.context, layout.tensor, layout.expert
    replicas, apart = data * context * layout.division.copies, tensor // layout.division.copies
    found = {
        "pipeline": (layout.pipeline, data * context * tensor),
        REPLICA: (replicas, apart),
        "tensor": (tensor, 1),
        "data": (data, context * tensor),
        EXPERT_REPLICA: (replicas // expert, expert * apart),
        "context": (context, tensor),
        "expert": (expert, tensor),
    }
    found |= {part: (size, stride * tensor) for part, (size, stride) in context_axes(layout).items()}
    if layout.tensor_shape is not None:
        side = layout.division.columns
        found |= {TENSOR_DEPTH: (tensor // side**2, side**2), TENSOR_ROW: (side, side), TENSOR_COLUMN: (side, 1)}
    if layout.shard:
        found |= {SHARD_REPLICA: (replicas // layout.shard, layout.shard * tensor), SHARD: (layout.shard, tensor)}
    if layout.shard and expert > 1:
        same_experts = max(1, layout.shard // expert)  # ranks of a group that hold the same experts
        found[EXPERT_SHARD_REPLICA] = (replicas // expert // same_experts, same_experts * expert * tensor)
        found[EXPERT_SHARD] = (same_experts, expert * tensor)
    return found | {axis: (size, stride * apart) for axis, (size, stride) in zero_plus_plus_axes(layout).items()}


def _group(axis: str, span: Span, limit: timedelta | None) -> dist.ProcessGroup | None:
    """The group of an axis: none for one rank, the world's for all ranks if they may share it."""
    size, _ = span
    if size == 1:
        return None
    if size == dist.get_world_size() and (axis in _REPLICAS or not runs_in_order()):
        return dist.group.WORLD
    return group_of_mine(_parts(span), f"mesh_{axis}", limit)


def _pairs(layout: Layout, limit: timedelta | None) -> dict[int, dist.ProcessGroup]:
    """The groups of this rank and its neighbours in the pipeline; none on gloo, and none where the pipeline's own group has two ranks."""
    ranks = layout.pipeline
    if ranks < 3 or not runs_in_order():
        return {}
    owners = {stage: rank for rank in range(ranks) for stage in layout.stages_of(rank)}
    ends_meet = any({owners[stage], owners[stage + 1]} == {0, ranks - 1} for stage in range(layout.stages - 1))
    return pairs_of_mine(_parts(_spans(layout)["pipeline"]), ends_meet, "mesh_pipeline", limit)


def _parts(span: Span) -> list[list[int]]:
    """The world's ranks, divided into those that an axis connects."""
    size, stride = span
    parts = torch.arange(dist.get_world_size()).view(-1, size, stride).transpose(1, 2).reshape(-1, size)
    found: list[list[int]] = parts.tolist()
    return found


def _parent(
    names: tuple[str, ...], axes: Mapping[str, Axis], layout: Layout, device: torch.device
) -> DeviceMesh | None:
    """The mesh of the world with the axes `names` between pipeline and tensor, without those of one rank that nothing needs."""
    needed = _SHARDING if layout.zero == 3 else frozenset()
    kept = [name for name in ("pipeline", *names, "tensor") if axes[name].size > 1 or name in needed]
    if not kept:
        return None
    ranks = torch.arange(layout.world_size).view([axes[name].size for name in kept])
    groups = [axes[name].group or group_of_one() for name in kept]
    if len(kept) == 1:
        return DeviceMesh.from_group(groups[0], device.type, mesh_dim_names=tuple(kept))
    return DeviceMesh.from_group(groups, device.type, ranks, mesh_dim_names=tuple(kept))


def _alone(axis: Axis, device: torch.device) -> DeviceMesh:
    assert axis.group is not None
    return DeviceMesh.from_group(axis.group, device.type)


def _within(parent: DeviceMesh, names: tuple[str, ...]) -> DeviceMesh:
    return parent[tuple(name for name in names if name in _names(parent))]


def _names(mesh: DeviceMesh) -> tuple[str, ...]:
    return mesh.mesh_dim_names or ()
