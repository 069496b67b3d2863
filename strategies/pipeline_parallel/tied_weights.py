"""Tied weights under a pipeline: every stage that uses a weight holds it, under one name (Megatron-LM, 1909.08053).

Such are an embedding and the head that shares it, the embedding of an encoder and a decoder, and position biases of all blocks of a stack.

Each rank has the gradient of its own use. After the data strategy has reduced it, the ranks exchange their gradients and add them in
the order of ranks, so that all their optimizers make the same update, to the bit. If one rank holds several of the stages (ZBV,
DualPipeV, interleaved), their modules share the parameter itself, and nothing is sent between them; ZeRO-3, which gathers it for each
use, keeps a shard for each (`fsdp.py`).

Memory: the weight and its state on each rank that holds it. Traffic per step: each of k ranks sends the weight's gradient to the k − 1
others; of a tied embedding, vocab · dim elements each way. From ZeRO-1 on and under tensor parallelism it is divided by the number of
replicas and the tensor degree. Clipping and checkpoints count only the first stage's param shard.
"""

from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist
from torch import nn

from ..data_strategy import AfterReduction, DataStrategy
from ..layout import Layout
from ..mesh import Mesh
from ..param_shard import manual_shards, ties
from ..telemetry.current import wait_on
from ..tensor_parallel.replaced_parameters import sharded_differently, sharding


def share(parts: Sequence[nn.Module], scalars: bool) -> None:
    """If stages of this rank hold the same weight, make them all use the parameter of the first of them; only of `scalars`, or of all."""
    first: dict[str, nn.Parameter] = {}
    for part in parts:
        for own, tie in ties(part).items():
            shared = first.setdefault(tie.name, part.get_parameter(own))
            if not (scalars and shared.dim()):
                path, _, key = own.rpartition(".")
                setattr(part.get_submodule(path), key, shared)


class TiedWeights(AfterReduction):
    """A data strategy that adds up the gradients of tied weights after reducing them.

    `ranks`: the weight's name → the ranks of the pipeline that hold it, in order. This rank is one of them.
    """

    def __init__(self, data: DataStrategy, ranks: Mapping[str, Sequence[int]], mesh: Mesh) -> None:
        super().__init__(data)
        self._group, self._rank, self._device = mesh.group("pipeline"), mesh.index("pipeline"), mesh.device
        # All ranks exchange in the order of names. So they never wait for each other forever, also where each weight has other holders.
        tied = sorted((shard for shard in data.shards if shard.name in ranks), key=lambda shard: shard.name)
        self._tied = [(shard, ranks[shard.name]) for shard in tied]

    def reduce(self) -> None:
        """Reduce over the replicas, then over the stages."""
        self._data.reduce()
        for shard, ranks in self._tied:
            assert shard.gradient is not None
            # With `offload.parameters` it is on the host, from which NCCL does not send.
            mine = shard.gradient.to(self._device)
            shard.gradient.copy_(self._summed(mine.contiguous(), ranks))

    def _summed(self, mine: torch.Tensor, ranks: Sequence[int]) -> torch.Tensor:
        """The sum of the gradients of `ranks`, in their order: the same bits on each of them."""
        everyone = [mine if rank == self._rank else torch.empty_like(mine) for rank in ranks]
        others = [(rank, theirs) for rank, theirs in zip(ranks, everyone, strict=True) if rank != self._rank]
        sends = [dist.P2POp(dist.isend, mine, group=self._group, group_peer=rank) for rank, _ in others]
        receives = [dist.P2POp(dist.irecv, theirs, group=self._group, group_peer=rank) for rank, theirs in others]
        for work in dist.batch_isend_irecv([*sends, *receives]):
            wait_on(work.wait, "swap", self._group)
        total, *more = everyone
        for gradient in more:
            total.add_(gradient)
        return total


def held_by_several(parts: Sequence[nn.Module], layout: Layout) -> dict[str, list[int]]:
    """The name of each trained weight of `parts` that other ranks of the pipeline hold too → all ranks that hold it, in order."""
    owners = {stage: rank for rank in range(layout.pipeline) for stage in layout.stages_of(rank)}
    trained = [tie for part in parts for own, tie in ties(part).items() if part.get_parameter(own).requires_grad]
    every = {tie.name: sorted({owners[stage] for stage in tie.stages}) for tie in trained}
    return {name: ranks for name, ranks in every.items() if len(ranks) > 1}


def check_sharding(parts: Sequence[nn.Module], mesh: Mesh) -> None:
    """Raise `Refusal` on every rank of the pipeline if stages shard a weight that they share differently over the tensor axis.

    The ranks exchange what they do: each has the plan of its own stages alone. Element by element they would add up unlike rows.
    """
    mine = {}
    for part in parts:
        by_hand = manual_shards(part)
        for own, tie in ties(part).items():
            mine[tie.name, own] = str(sharding(part.get_parameter(own), by_hand.get(own)))
    everyone: list[dict[tuple[str, str], str]] = [{}] * mesh.size("pipeline")
    dist.all_gather_object(everyone, mine, group=mesh.group("pipeline"))
    first: dict[str, tuple[str, str]] = {}
    for (name, own), how in sorted(entry for each in everyone for entry in each.items()):
        place, known = first.setdefault(name, (own, how))
        if how != known:
            raise sharded_differently(parts[0], place, own)


def sum_tied_grads(data: DataStrategy, parts: Sequence[nn.Module], mesh: Mesh) -> DataStrategy:
    """`data` with tied weights summed over the ranks that hold them; `data` itself if no other rank holds any."""
    several = held_by_several(parts, mesh.layout)
    return TiedWeights(data, several, mesh) if several else data
