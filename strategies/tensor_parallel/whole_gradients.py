"""Gradients of what tensor parallelism leaves whole: the same bits on all tensor ranks that hold it.

Such are norms, routers, and biases of row-sharded layers; over a grid or a cube most vectors along some of its axes. Each tensor rank sums
their gradients over data ranks of its own. A floating-point sum of three or more numbers depends on their order, and no backend promises
the same order on two groups: NCCL's follows rings and channels, gloo's the number's place in the message, which is another one where a
part before it has more rows. So after the data strategy has reduced, the first rank of each tensor axis sends its sums to the others.
Otherwise these weights would drift apart: the replica check would fail the job, and without it mixtures would route tokens differently.
The same is true of what ranks of several lines of a grid or a cube hold: its gradients are added up along one line after the other, and
along the later ones each rank of the first is in another group.

A sum of two numbers has no order: with up to two replicas, and lines of two ranks, nothing is sent.

Traffic per step: n(t−1)/t elements along an axis of t ranks, if a rank has n of them after ZeRO. Memory: n elements during `reduce`.
"""

from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist

from ..data_strategy import AfterReduction, DataStrategy
from ..mesh import GROUPS, Mesh
from ..param_shard import ParamShard
from ..telemetry.current import wait_on


class WholeGradients(AfterReduction):
    """A data strategy that, after reducing, gives the ranks of each tensor axis the sums of the first of them.

    `whole`: tensor axis → the param shards that its ranks hold whole, in the same order on all of them.
    """

    def __init__(self, data: DataStrategy, whole: Mapping[str, Sequence[ParamShard]], mesh: Mesh) -> None:
        super().__init__(data)
        self._whole, self._mesh = whole, mesh

    def reduce(self) -> None:
        """Reduce over the replicas, then share the sums, one message per tensor axis."""
        self._data.reduce()
        for axis, shards in self._whole.items():
            self._share(axis, [_gradient(shard) for shard in shards])

    def _share(self, axis: str, gradients: Sequence[torch.Tensor]) -> None:
        """Replace `gradients` by those of the first rank of `axis`."""
        group = self._mesh.group(axis)
        # With `offload.parameters` they are on the host, from which NCCL does not send.
        flat = torch.cat([gradient.to(self._mesh.device).flatten() for gradient in gradients])
        wait_on(lambda: dist.broadcast(flat, group=group, group_src=0), "broadcast", group)
        if self._mesh.index(axis):
            for gradient, part in zip(gradients, flat.split([each.numel() for each in gradients]), strict=True):
                gradient.copy_(part.view_as(gradient))


def _gradient(shard: ParamShard) -> torch.Tensor:
    assert shard.gradient is not None
    return shard.gradient


def share_whole_grads(data: DataStrategy, mesh: Mesh) -> DataStrategy:
    """`data` with equal gradients on tensor ranks that hold the same; `data` itself if no order of sums could make them differ."""
    ordered = [shard for shard in data.shards if max(_summands(shard, mesh), _summands_of_lines(shard, mesh)) > 2]
    axes = {axis: [shard for shard in ordered if axis not in shard.axes] for axis in mesh.tensor_axes}
    whole = {axis: shards for axis, shards in axes.items() if shards and mesh.size(axis) > 1}
    return WholeGradients(data, whole, mesh) if whole else data


def _summands(shard: ParamShard, mesh: Mesh) -> int:
    """The most gradients that are added up at a time: HSDP adds inside its groups, and then the groups' sums."""
    between, inside = GROUPS[shard.replicas]
    return max(mesh.size(axis) for axis in ((between, inside) if inside in shard.axes else (shard.replicas,)))


def _summands_of_lines(shard: ParamShard, mesh: Mesh) -> int:
    """The most gradients that tensor ranks add up at a time within the backward pass, if they do so along several lines; else 1.

    Along a single line all ranks that hold the same are in one group, and get the same sum.
    """
    lines = [mesh.size(axis) for axis in mesh.tensor_axes if axis not in shard.axes and mesh.size(axis) > 1]
    return max(lines) if len(lines) > 1 else 1
