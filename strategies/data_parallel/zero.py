"""ZeRO stages 1 and 2: optimizer state, and gradients, sharded over the data axis (Rajbhandari et al., 1910.02054, sections 5.1 and 5.2).

Each rank updates its chunk of every parameter (dimension 0 split as by `torch.chunk`) and gathers the others'.

Traffic per step: Ψ(N−1)/N reduce-scattered and Ψ(N−1)/N gathered elements. Stage 1 adds micro-batches up locally and sends once.
Stage 2 reduces each micro-batch's gradients at once and keeps its own chunk only, so its reduce-scatter repeats per micro-batch.
Under a pipeline both reduce once, during each stage's last backward pass: a schedule interleaves micro-batches, and whole gradients
must exist until then.

Memory in mixed precision (K = 12: fp32 values and two moments): stage 1 holds 6Ψ + 12Ψ/N bytes, stage 2 2Ψ + 16Ψ/N, and at most
`prefetch` buckets in transit. Gradients are summed in fp32 over micro-batches and ranks, and sent in fp32: NCCL's reduce-scatter sums
in the dtype of what it sends. On gloo stage 2 sends one micro-batch's gradient as it is, in the compute dtype, and the receiver sums it
in fp32. Values are gathered in the compute dtype.

With gradients in the compute dtype it is 4Ψ + 12Ψ/N and 2Ψ + 14Ψ/N bytes, as the paper counts them: they are then sent and stored
in it. On gloo the sum over ranks is computed in fp32 and rounded once; the sum over micro-batches is rounded with each. The optimizer's
step reads the own chunk's gradient in fp32: 4Ψ/N bytes more, from `reduce` to `publish`.

With quantised gradients (ZeRO++) an all-to-all of blocks of 8 or 4 bits takes the place of the reduce-scatter: `zero_plus_plus.py`.

Stage 1's buckets stay allocated from step to step: gradients are summed in the same memory, and updated parameters are received in it.

Reduction overlaps with the backward pass, and gathering (`gathers.py`) with the next forward pass. On NCCL gradients that are reduced
in place need no memory of their own: their buckets are in transit at once. Under a pipeline no rank waits for a bucket before the
schedule has ended: other stages wait for its messages. So on gloo the first `prefetch` buckets are sent during the last backward pass,
the others in `reduce`.
"""

import math
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import torch
from torch import nn

from ..collectives import Pending, exchange_and_sum, reduce_scatter
from ..comm_overlap import Overlap
from ..mesh import Mesh
from ..param_shard import DeviceSide, DimShard, ParamShard, parameters, with_elements
from ..precision import Precision
from .buckets import Bucket, BucketOrder, fill_buckets, own_bytes
from .gathers import Gathers
from .master_weights import Masters
from .zero_plus_plus import QuantizedReduction

#: Starts to sum rows [N, n] over all ranks. The result [n] is this rank's row, in the second argument if that is given.
Reduction = Callable[[torch.Tensor, torch.Tensor | None], Pending]


@dataclass(frozen=True)
class _Row:
    """This rank's row of a bucket's values on the device: those that the optimizer updates in place, or rounded, if it does on the host."""

    values: torch.Tensor
    on_host: bool


class ShardedOptimizer:
    """Sends buckets of gradients during backward; `gathers.py` receives buckets of parameters during forward."""

    def __init__(
        self,
        parts: Sequence[nn.Module],
        mesh: Mesh,
        precision: Precision,
        stage: int,
        overlap: Overlap,
        masters: Masters,
    ) -> None:
        self._mesh, self._precision, self._prefetch = mesh, precision, overlap.prefetch
        self._each_microbatch = stage == 2 and mesh.size("pipeline") == 1
        # NCCL sums in the dtype that is sent, gloo's receiver in a wider one.
        sent = precision.compute if self._each_microbatch and not mesh.reduces else precision.gradients
        wide = sent != precision.compute
        filled = fill_buckets(parameters(parts, mesh), sent.itemsize, overlap.bucket_bytes)
        # Under a pipeline, gradients that need not be wider stay with their parameters until the stage's last pass.
        self._stay = stage == 1 and (wide or mesh.size("pipeline") == 1)
        self._buckets = [Bucket(bucket, mesh.size(bucket[0].replicas), self._stay, sent) for bucket in filled]
        self._own = [self._own_row(bucket, masters) for bucket in self._buckets]
        self._shards = [self._own_shards(*one, masters) for one in zip(self._buckets, self._own, strict=True)]
        self.all_shards = [shard for bucket in self._shards for shard in bucket]
        self.shards = with_elements(self.all_shards)
        self._order = BucketOrder(self._buckets, self._send, always=wide)
        self._complete: deque[int] = deque()
        self._sent: deque[tuple[int, Pending]] = deque()
        self._reductions = [self._reduction(bucket) for bucket in self._buckets]
        # A reduce-scatter of gradients that all exist, into this rank's own row, needs no memory: any number may be in transit.
        self._in_place = mesh.reduces and not self._each_microbatch and not _quantised(mesh)
        self._sums: list[torch.Tensor | None] = [None] * len(self._buckets)
        rows = [own.values for own in self._own]
        self._gathers = Gathers(self._buckets, rows, parts, mesh, precision, overlap)
        self.gradient_peak = 0

    def _reduction(self, bucket: Bucket) -> Reduction:
        if _quantised(self._mesh):
            return QuantizedReduction(self._mesh, bucket.widths).start
        group, way = bucket.group(self._mesh), reduce_scatter if self._mesh.reduces else exchange_and_sum
        return lambda rows, into: way(rows, group, into)

    def _own_row(self, bucket: Bucket, masters: Masters) -> _Row:
        on_host = masters.stays_on_host(sum(math.prod(parameter.shape) for parameter in bucket.parameters))
        dtype = self._precision.compute if on_host else self._precision.master
        return _Row(torch.zeros(bucket.width, dtype=dtype, device=self._mesh.device), on_host)

    def _own_shards(self, bucket: Bucket, row: _Row, masters: Masters) -> list[ParamShard]:
        found = []
        cut = DimShard(bucket.replicas, 0, bucket.parts, self._mesh.index(bucket.replicas))
        for parameter, value in zip(bucket.parameters, row.values.split(bucket.widths), strict=True):
            own = masters.take(parameter)
            here = value[: own.numel()].view_as(own)
            if row.on_host:
                found.append(replace(parameter.shard(own, cut), on_device=DeviceSide(here)))
            else:
                found.append(parameter.shard(here.copy_(own), cut))
        return found

    def before_backward(self, last: bool) -> None:
        self.settle()
        if self._order.sending:  # the previous micro-batch
            self._order.flush()
            self._receive_all()
        self._order.arm(sending=last or self._each_microbatch)

    def _send(self, number: int) -> None:
        self._complete.append(number)
        self._start(may_wait=self._mesh.size("pipeline") == 1)

    def _start(self, may_wait: bool) -> None:
        """Start to reduce the complete buckets, in order, as many as may be in transit; the others too if it `may_wait`."""
        while self._complete and (may_wait or self._may_start()):
            number = self._complete.popleft()
            bucket = self._buckets[number]
            rows = bucket.finish()
            self.gradient_peak = max(self.gradient_peak, self._gradient_bytes())
            while not self._may_start():
                self._receive()
            into = rows[self._mesh.index(bucket.replicas)] if self._stay or self._in_place else None
            self._sent.append((number, self._reductions[number](rows, into)))

    def _may_start(self) -> bool:
        return self._in_place or len(self._sent) < self._prefetch

    def _receive(self) -> None:
        """Wait for the oldest bucket in transit and add it to this rank's sums."""
        number, wait = self._sent.popleft()
        bucket, arrived, so_far = self._buckets[number], wait(), self._sums[number]
        if so_far is not None:
            so_far.add_(arrived)
        else:  # one row of memory that is freed is copied
            copy = self._in_place and not self._stay and bucket.parts > 1
            self._sums[number] = arrived.to(self._precision.gradients, copy=copy)
        if not self._stay:
            bucket.clear()

    def collect(self) -> None:
        self._order.collect()

    def finishing(self, values: Collection[nn.Parameter]) -> AbstractContextManager[None]:
        return self._order.finishing(values)

    def _receive_all(self) -> None:
        while self._sent:
            self._receive()

    def _gradient_bytes(self) -> int:
        rows = sum(bucket.bytes for bucket in self._buckets)
        sums = 0 if self._stay else sum(row.nbytes for row in self._sums if row is not None)
        return rows + sums + _left_on(self._buckets)

    @torch.no_grad()
    def reduce(self) -> None:
        self.settle()
        self._order.flush()
        self._start(may_wait=True)
        self._receive_all()
        for number, shards in enumerate(self._shards):
            row = self._sums[number]
            assert row is not None
            self._sums[number] = None
            parts = row.to(self._precision.master).split(self._buckets[number].widths)
            for shard, part in zip(shards, parts, strict=True):
                shard.set_gradient(part[: shard.tensor.numel()].view_as(shard.tensor))

    def publish(self) -> None:
        """Start to gather the updated parameters, in the order in which the next forward pass uses them."""
        for shard in self.shards:
            shard.set_gradient(None)
            shard.publish()
        for bucket in self._buckets:
            bucket.clear()
            for parameter in bucket.parameters:
                parameter.value.grad = None
        self._gathers.start()

    def settle(self) -> None:
        """Wait until every parameter has its new value."""
        self._gathers.settle()

    def after_validation(self) -> None:
        """Does nothing: no values were gathered for validation only."""


def _quantised(mesh: Mesh) -> bool:
    """Whether gradients are sent in few bits."""
    return mesh.layout.zero_plus_plus is not None


def _left_on(buckets: Sequence[Bucket]) -> int:
    """Bytes of gradients that are not in a bucket yet."""
    grads = [p.value.grad for bucket in buckets for p in bucket.parameters]
    return sum(own_bytes(grad) for grad in grads if grad is not None)
