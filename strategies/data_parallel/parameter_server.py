"""Parameter servers: they hold the values and the optimizer's state, workers compute (Li et al., OSDI 2014, "Scaling distributed machine
learning with the parameter server").

Each step is synchronous. A worker pushes its gradients, Ψ elements in all, each to the server that holds the parameter. A server sums
them in the order of the workers' ranks, so that the result is the same on every run. The loop clips and updates the param shards, which
only servers have. Then the workers pull the new values, Ψ elements in the compute dtype: 2Ψ per worker and step, whatever the number of
workers. All of it passes through k servers: 2ΨN/k each with N workers, where a ring's all-reduce moves 2Ψ(N−1)/N per rank.

Memory in mixed precision: a worker holds 2Ψ of values and 4Ψ of gradients, a server with Ψ_s elements 16Ψ_s, and at most `prefetch`
messages of every worker in transit.

Pushing overlaps with the backward pass, and pulling with the next forward pass. Messages are buckets of parameters of one server. All
ranks have them in the same order, that of the backward pass; values come in the opposite order, that of the forward pass.
"""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import nn

from ..collectives import Pending, receive, send
from ..comm_overlap import Overlap
from ..mesh import SERVER, Mesh
from ..param_shard import DimShard, Parameter, ParamShard, parameters
from ..precision import Precision
from .buckets import Bucket, BucketOrder, fill_buckets, own_bytes
from .gathers import callers, uses
from .key_assignment import assign


@dataclass(frozen=True)
class Message:
    """Parameters of the server with the rank `server` that travel together."""

    server: int
    parameters: list[Parameter]


def messages(found: Sequence[Parameter], mesh: Mesh, element_bytes: int, limit: int) -> list[Message]:
    """All messages of a step, each of at most `limit` bytes or of one parameter, in the order in which backward completes them."""
    servers = assign([p.local.numel() for p in found], mesh.layout.servers)
    turns = {parameter.name: turn for turn, parameter in enumerate(reversed(found))}
    made = []
    for server in range(mesh.layout.servers):
        own = [p for p, holder in zip(found, servers, strict=True) if holder == server]
        made += [Message(mesh.layout.data + server, b) for b in fill_buckets(own, element_bytes, limit)]
    return sorted(made, key=lambda message: max(turns[p.name] for p in message.parameters))


class Worker:
    """The data strategy of a rank that computes. It has no param shards: their values and gradients are on the servers."""

    def __init__(self, parts: Sequence[nn.Module], mesh: Mesh, precision: Precision, overlap: Overlap) -> None:
        self._group = mesh.group(SERVER)
        wide = precision.gradients != precision.compute
        sent = messages(parameters(parts, mesh), mesh, precision.gradients.itemsize, overlap.bucket_bytes)
        self._servers = [message.server for message in sent]
        self._buckets = [Bucket(message.parameters, 1, True, precision.gradients) for message in sent]
        self._order = BucketOrder(self._buckets, self._push, always=wide)
        self._pushed: list[Pending] = []
        self._pulled: dict[int, Pending] = {}
        self.shards: list[ParamShard] = []
        self.all_shards: list[ParamShard] = []
        self.gradient_peak = 0
        self._watch(parts)

    def before_backward(self, last: bool) -> None:
        self.settle()  # values may arrive in the memory that gradients now need
        self._order.arm(sending=last)

    def _push(self, number: int) -> None:
        self._pushed.append(send(self._buckets[number].finish()[0], self._servers[number], self._group))

    def collect(self) -> None:
        self._order.collect()

    def finishing(self, values: Collection[nn.Parameter]) -> AbstractContextManager[None]:
        return self._order.finishing(values)

    @torch.no_grad()
    def reduce(self) -> None:
        """Push what is left, and wait until all has left this rank."""
        grads = [p.value.grad for bucket in self._buckets for p in bucket.parameters]
        left = sum(own_bytes(grad) for grad in grads if grad is not None)
        self.gradient_peak = max(self.gradient_peak, left + sum(bucket.bytes for bucket in self._buckets))
        self._order.flush()
        for wait in self._pushed:
            wait()
        self._pushed.clear()

    @torch.no_grad()
    def publish(self) -> None:
        """Start to pull all values, in the order in which the next forward pass uses them."""
        self.settle()
        for bucket in self._buckets:
            bucket.clear()
            for parameter in bucket.parameters:
                parameter.value.grad = None
        for number in reversed(range(len(self._buckets))):
            bucket = self._buckets[number]
            rows = bucket.landing
            if rows is None:
                rows = bucket.parameters[0].local.new_empty(1, bucket.width)
            self._pulled[number] = receive(rows.view(-1), self._servers[number], self._group)

    @torch.no_grad()
    def settle(self, needed: Collection[int] | None = None) -> None:
        """Wait until the parameters of the messages `needed` (default: all) have their new values."""
        for number in [one for one in self._pulled if needed is None or one in needed]:
            rows = self._pulled.pop(number)().view(1, -1)
            self._buckets[number].spread(rows)

    def after_validation(self) -> None:
        """Does nothing: nothing was gathered for validation only."""

    def _watch(self, parts: Sequence[nn.Module]) -> None:
        """Let every block wait for its own parameters when it is called."""
        turns = uses(parts)
        for turn, module in enumerate(callers(parts)):
            needed = [n for n, b in enumerate(self._buckets) if any(turns[p.value] == turn for p in b.parameters)]
            if needed:
                module.register_forward_pre_hook(self._hook(needed))

    def _hook(self, needed: Sequence[int]) -> Callable[[nn.Module, object], None]:
        def before_forward(_: nn.Module, __: object) -> None:
            if self._pulled:
                self.settle(needed)

        hook: Callable[[nn.Module, object], None] = torch.compiler.disable(before_forward)
        return hook


class Server:
    """The data strategy of a rank that holds param shards: whole parameters, those of its messages, in one row per message."""

    def __init__(self, found: Sequence[Parameter], mesh: Mesh, precision: Precision, overlap: Overlap) -> None:
        self._group, self._precision, self._prefetch = mesh.group(SERVER), precision, overlap.prefetch
        self._workers, mine = mesh.layout.data, mesh.index(SERVER)
        sent = messages(found, mesh, precision.gradients.itemsize, overlap.bucket_bytes)
        own = [message.parameters for message in sent if message.server == mine]
        self._widths = [[p.local.numel() for p in some] for some in own]
        self._rows = [_values(some, precision.master, mesh.device) for some in own]
        whole = DimShard(SERVER, 0, 1, 0)
        self._shards = [
            [p.shard(v.view(p.local.shape), whole) for p, v in zip(some, row.split(widths), strict=True)]
            for some, row, widths in zip(own, self._rows, self._widths, strict=True)
        ]
        self.shards = self.all_shards = [shard for some in self._shards for shard in some]
        self._sent: list[Pending] = []
        self.gradient_peak = 0

    def before_backward(self, last: bool) -> None:
        """Does nothing: a server has no backward pass."""

    def collect(self) -> None:
        """Does nothing: a server computes no gradients."""

    def finishing(self, values: Collection[nn.Parameter]) -> AbstractContextManager[None]:  # noqa: ARG002
        return nullcontext()

    @torch.no_grad()
    def reduce(self) -> None:
        """Receive the workers' gradients, at most `prefetch` messages of each at a time, and sum them in the order of their ranks."""
        self.settle()
        coming: deque[list[Pending]] = deque()
        for number in range(len(self._rows) + self._prefetch):
            if number >= self._prefetch and coming:
                self._sum(number - self._prefetch, coming.popleft())
            if number < len(self._rows):
                coming.append(self._receive(number))
        self.gradient_peak = max(self.gradient_peak, sum(row.nbytes for row in self._rows))

    def _receive(self, number: int) -> list[Pending]:
        into = torch.empty(self._workers, self._rows[number].numel(), dtype=self._precision.gradients)
        return [receive(one, worker, self._group) for worker, one in enumerate(into)]

    def _sum(self, number: int, coming: Sequence[Pending]) -> None:
        first, *others = coming
        total = first().to(self._precision.master)
        for wait in others:
            total.add_(wait())
        parts = total.split(self._widths[number])
        for shard, part in zip(self._shards[number], parts, strict=True):
            shard.set_gradient(part.view_as(shard.tensor))

    @torch.no_grad()
    def publish(self) -> None:
        """Start to send all values to every worker, rounded to the compute dtype."""
        self.settle()
        for shard in self.shards:
            shard.set_gradient(None)
        for row in reversed(self._rows):
            values = row.to(self._precision.compute)
            self._sent += [send(values, worker, self._group) for worker in range(self._workers)]

    def settle(self) -> None:
        """Wait until every worker has received the values: they may change then."""
        for wait in self._sent:
            wait()
        self._sent.clear()

    def after_validation(self) -> None:
        """Does nothing: a server validates nothing."""


def _values(some: Sequence[Parameter], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """The parameters' values in one row; NaN where they have none yet: a value that is used before it is set shows at once."""
    row = torch.full((sum(p.local.numel() for p in some),), torch.nan, dtype=dtype, device=device)
    for parameter, part in zip(some, row.split([p.local.numel() for p in some]), strict=True):
        if not parameter.local.is_meta:
            part.copy_(parameter.local.reshape(-1))
    return row
