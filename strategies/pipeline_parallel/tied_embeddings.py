"""Tied embeddings under a pipeline: the first and the last stage both hold the weight, under one name (Megatron-LM, 1909.08053).

Each of the two ranks has the gradient of its own use. After the data strategy has reduced it, the two ranks exchange their
gradients and add them, so that both optimizers make the same update, to the bit (a + b = b + a). If one rank holds both stages
(ZBV, DualPipeV), both modules share the parameter itself, and nothing is sent; ZeRO-3, which gathers it for each use, keeps a shard
for each (`fsdp.py`).

Memory: vocab · dim parameters and their state on one more rank. Traffic per step: vocab · dim elements each way, divided by the
tensor degree and, from ZeRO-1 on, by the number of replicas. Clipping and checkpoints count only the first stage's param shard.
"""

from collections.abc import Sequence
from typing import cast

import torch
import torch.distributed as dist
from torch import nn

from ..data_strategy import DataStrategy
from ..mesh import Mesh
from ..param_shard import ParamShard, tied_names
from ..telemetry.current import wait_on


def share(parts: Sequence[nn.Module]) -> None:
    """If this rank holds both stages, make the last stage's head use the first stage's own parameter."""
    first, last = parts[0], parts[-1]
    if len(parts) > 1 and "embed.weight" in tied_names(first) and "head.weight" in tied_names(last):
        cast(nn.Linear, last.head).weight = cast(nn.Embedding, first.embed).weight


class TiedEnds:
    """A data strategy that adds up the two stages' gradients of the tied weights `names` after reducing them."""

    def __init__(self, data: DataStrategy, names: frozenset[str], mesh: Mesh) -> None:
        self._data, self._group = data, mesh.group("pipeline")
        self.shards: list[ParamShard] = data.shards
        self._tied = sorted((p for p in data.shards if p.name in names), key=lambda p: p.name)
        last = mesh.size("pipeline") - 1
        self._other = last - mesh.index("pipeline")  # the pipeline rank of the other end
        self.before_backward, self.publish = data.before_backward, data.publish
        self.after_validation, self.collect = data.after_validation, data.collect
        self.settle, self.finishing = data.settle, data.finishing

    @property
    def gradient_peak(self) -> int:
        return self._data.gradient_peak

    @gradient_peak.setter
    def gradient_peak(self, value: int) -> None:
        self._data.gradient_peak = value

    def reduce(self) -> None:
        """Reduce over the replicas, then over the two ends."""
        self._data.reduce()
        for shard in self._tied:
            assert shard.gradient is not None
            shard.gradient.add_(self._swapped(shard.gradient.contiguous()))

    def _swapped(self, mine: torch.Tensor) -> torch.Tensor:
        theirs = torch.empty_like(mine)
        send = dist.P2POp(dist.isend, mine, group=self._group, group_peer=self._other)
        receive = dist.P2POp(dist.irecv, theirs, group=self._group, group_peer=self._other)
        for work in dist.batch_isend_irecv([send, receive]):
            wait_on(work.wait, "swap", self._group)
        return theirs


def sum_tied_grads(data: DataStrategy, parts: Sequence[nn.Module], mesh: Mesh) -> DataStrategy:
    """`data` with tied weights summed over the two ranks that hold them; `data` itself if there are none."""
    names = frozenset(name for part in parts for name in tied_names(part).values())
    both = {own for part in parts for own in tied_names(part)} >= {"embed.weight", "head.weight"}
    return TiedEnds(data, names, mesh) if names and not both else data
