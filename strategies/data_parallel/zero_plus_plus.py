"""ZeRO++ (Wang et al., 2306.10209): what ZeRO sends when weights or gradients are quantised, and the secondary partition of weights.

- qwZ (section 4.1): a rank's shards of a module's weights are one message of quantised blocks. Every rank, its owner too, computes with
  what is read back.
- hpZ (section 4.2): a step's first gather of a module is over all replicas. What arrived then is kept in shards once more, each group of
  S replicas has all of it, and until the next update weights come from that group. What is kept is the message: with quantised weights
  its bytes, so that forward and backward pass compute with the same numbers. It takes cΨ/S bytes, or about Ψ/S in 8 bits.
- qgZ (section 4.3): a reduce-scatter by all-to-alls. A rank quantises its part of every other rank's sum. First the q ranks of a node
  exchange, and each adds up what is for the ranks with its own place in their nodes; it quantises these sums, and nodes exchange them.
  Numbers are added in fp32 or wider, and quantised at most twice, whatever the number of ranks.

On a node's links a rank sends (q−1)/q of N messages, between nodes N/q − 1 messages, each as long as its own shard of the module.
"""

from collections.abc import Sequence
from typing import Any, cast

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule

from ..collectives import Pending, all_gather, all_to_all
from ..comm_overlap import Overlap
from ..mesh import NODE, NODES, REPLICA, SECONDARY, SHARD, Mesh
from ..zero_plus_plus import BITS
from .fsdp_comm import Allocate, GlooAllGather, GlooReduceScatter, SumsInTransit
from .quantized_blocks import BlockQuantizer


class QuantizedReduction:
    """A reduce-scatter of rows whose parts have `sizes` numbers, over all ranks at once or first inside nodes and then across them."""

    def __init__(self, mesh: Mesh, sizes: Sequence[int]) -> None:
        given = mesh.layout.zero_plus_plus
        assert given is not None and given.gradients is not None
        self._quantizer = BlockQuantizer(BITS[given.gradients], given.block, sizes)
        by_node, whole = given.gradient_node is not None, SHARD if mesh.layout.shard else REPLICA
        self._inside = mesh.group(NODE if by_node else whole)
        self._across = mesh.group(NODES) if by_node else None

    def start(self, rows: torch.Tensor, into: torch.Tensor | None = None) -> Pending:
        """Start to sum `rows` [N, n] over all ranks. The result [n] is this rank's row, in `into` or in fp32 or wider."""
        near, far = self._inside.size(), 1 if self._across is None else self._across.size()
        # Rank o · q + i is rank i of node o: the messages for all ranks with place i go to rank i of this node.
        messages = self._quantizer.encode(rows).view(far, near, -1).transpose(0, 1).reshape(near * far, -1)
        arrival, across = all_to_all(messages, self._inside), self._across
        width, device, wide = rows.shape[1], rows.device, torch.promote_types(rows.dtype, torch.float32)

        def wait() -> torch.Tensor:
            total = torch.empty(far, width, dtype=wide, device=device)
            self._sum(arrival().view(near, far, -1), total)
            if across is not None:
                others = all_to_all(self._quantizer.encode(total), across)()
                self._sum(others.view(far, 1, -1), total[:1])
            return total[0] if into is None else into.copy_(total[0])

        return wait

    def _sum(self, messages: torch.Tensor, into: torch.Tensor) -> None:
        """Write the sum over senders of `messages` [senders, R, bytes] into `into` [R, n], in the order of their ranks."""
        first, *others = messages.unbind()
        self._quantizer.decode(first, into)
        for one in others:
            into.add_(self._quantizer.decode(one, torch.empty_like(into)))


class WeightGather(Allocate):
    """For `set_custom_all_gather` of one module, whose shards have `sizes` numbers: quantised, or from a secondary shard, or both."""

    def __init__(self, mesh: Mesh, sizes: Sequence[int]) -> None:
        given = mesh.layout.zero_plus_plus
        assert given is not None
        self._quantizer = BlockQuantizer(BITS[given.weights], given.block, sizes) if given.weights else None
        self._secondary = mesh.axes.get(SECONDARY)
        self._kept: torch.Tensor | None = None

    @property
    def kept(self) -> torch.Tensor | None:
        """This rank's secondary shard [bytes or numbers], between a step's first gather and its update."""
        return self._kept

    def drop(self) -> None:
        """The weights are others now: the next gather is over all replicas."""
        self._kept = None

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,  # noqa: ARG002  (torch's signature)
    ) -> dist.Work | None:
        """Start to gather `input_tensor` [n], which is a part of `output_tensor` [N·n]. On a GPU the stream waits, and not the host."""
        pending = self._start(output_tensor, input_tensor, group)
        if output_tensor.device.type == "cpu":
            return PendingWork(pending)
        pending()
        return None

    def _start(self, output: torch.Tensor, mine: torch.Tensor, group: dist.ProcessGroup) -> Pending:
        values = output.view(group.size(), -1)
        messages = values
        if self._quantizer:
            width = self._quantizer.message_bytes(mine.dtype)
            messages = torch.empty(group.size(), width, dtype=torch.uint8, device=mine.device)
        if self._kept is not None:
            assert self._secondary is not None and self._secondary.group is not None
            arrival = all_gather(self._kept, self._secondary.group, messages.view(self._secondary.size, -1))
        else:
            own = self._quantizer.encode(mine.view(1, -1)).view(-1) if self._quantizer else mine
            arrival = all_gather(own, group, messages)

        def wait() -> torch.Tensor:
            arrival()
            self._keep(messages)
            return self._quantizer.decode(messages, values) if self._quantizer else values

        return wait

    def _keep(self, messages: torch.Tensor) -> None:
        if self._secondary is not None and self._kept is None:
            self._kept = messages.view(self._secondary.size, -1)[self._secondary.index].clone()


class PendingWork(dist.Work):
    """A collective under way, with what follows it, on which torch waits."""

    def __init__(self, pending: Pending) -> None:
        super().__init__()
        self._pending = pending

    def wait(self, *_: Any) -> bool:
        self._pending()
        return True


class GradientReduceScatter(Allocate):
    """For `set_custom_reduce_scatter` of one module. On CPUs sums are in transit among those of other modules, `sums`."""

    def __init__(self, reduction: QuantizedReduction, sums: SumsInTransit) -> None:
        self._reduction, self._sums = reduction, sums

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: object,  # noqa: ARG002
        async_op: bool = False,  # noqa: ARG002
    ) -> None:
        """Start to sum `input_tensor` [N·n] over `group` into `output_tensor` [n]. `op` is always a sum: see `fsdp.py`."""
        pending = self._reduction.start(input_tensor.view(group.size(), -1), output_tensor)
        if output_tensor.device.type == "cpu":
            self._sums.add(pending, self)
        else:
            pending()


class ShardCommunication:
    """What the modules that `fully_shard` shards send by: torch's messages, gloo's, or ZeRO++'s."""

    def __init__(self, mesh: Mesh, overlap: Overlap) -> None:
        # With sharding groups, torch all-reduces between groups as soon as a group has its own sum.
        self.sums = SumsInTransit(overlap.prefetch, at_once=bool(mesh.hybrid))
        self._mesh = mesh
        self._gathers: list[WeightGather] = []

    def set_on(self, module: FSDPModule, sizes: Sequence[int], trained: Sequence[int]) -> None:
        """Let `module` send by them. `sizes`: numbers of a rank's shards of its parameters; `trained`: of those that have a gradient."""
        given, on_cpu = self._mesh.layout.zero_plus_plus, self._mesh.device.type == "cpu"
        if given is not None and (given.weights or given.secondary):
            self._gathers.append(WeightGather(self._mesh, sizes))
            module.set_custom_all_gather(cast(Any, self._gathers[-1]))
        elif on_cpu:
            module.set_custom_all_gather(cast(Any, GlooAllGather()))
        quantised = given is not None and given.gradients is not None
        # So that a message always has the same parts, whatever a rank's tokens have used; see also `fsdp_sums.py`.
        module.set_reduce_scatter_unused_params(True, recurse=False)
        if quantised:
            reduction = QuantizedReduction(self._mesh, trained)
            module.set_custom_reduce_scatter(cast(Any, GradientReduceScatter(reduction, self.sums)))
        elif on_cpu:
            module.set_custom_reduce_scatter(cast(Any, GlooReduceScatter(self.sums)))

    def drop(self) -> None:
        """The weights are others now: drop their gradients' sums and secondary shards."""
        self.sums.forget()
        for gather in self._gathers:
            gather.drop()
