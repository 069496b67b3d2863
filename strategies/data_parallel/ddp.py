"""Data parallelism: every rank holds the whole state, gradients are summed over the data axis in buckets (Li et al., 2006.15704).

Memory per rank in mixed precision: 18Ψ bytes, 16Ψ with gradients in the compute dtype. Traffic per step: 2Ψ(N−1)/N elements of
gradients, whatever the number of micro-batches: only the last one's backward pass sends, under a pipeline that of each stage.
"""

import math
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import torch
from torch import nn

from ..collectives import Pending, all_reduce
from ..comm_overlap import Overlap
from ..mesh import Mesh
from ..param_shard import DeviceSide, Parameter, ParamShard, with_elements
from ..precision import Precision
from .buckets import Bucket, BucketOrder, fill_buckets, own_bytes
from .master_weights import Masters
from .shared_gradients import unshare


class DDP:
    """Stage 0. With low precision, `shards` are fp32 masters of the model's own weights."""

    def __init__(
        self, parameters: Sequence[Parameter], mesh: Mesh, precision: Precision, overlap: Overlap, masters: Masters
    ) -> None:
        self._mesh, self._precision = mesh, precision
        # If gradients are wider than the compute dtype, each micro-batch's is added to its bucket. Otherwise they are added up in the
        # parameters' own gradients: under a pipeline until the stage's last pass, and always for gradients that are not shared.
        wide = precision.gradients != precision.compute
        packed = [p for p in parameters if wide or mesh.size(p.replicas) > 1]
        loose = [p for p in parameters if not wide and mesh.size(p.replicas) == 1]
        filled = fill_buckets(packed, precision.gradients.itemsize, overlap.bucket_bytes)
        stay = wide or mesh.size("pipeline") == 1
        self._buckets = [Bucket(bucket, 1, stay, precision.gradients) for bucket in filled]
        ordered = [*(p for bucket in filled for p in bucket), *loose]
        self._masters = [(p, self._shard(p, masters)) for p in ordered]
        self.all_shards = [shard for _, shard in self._masters]
        self.shards = with_elements(self.all_shards)
        self._order = BucketOrder(self._buckets, self._send, always=wide)
        for parameter in loose:
            parameter.value.register_post_accumulate_grad_hook(unshare)  # they are added up, and scaled, in place
        self._pending: list[Pending] = []
        self._swapped: dict[nn.Parameter, torch.Tensor] = {}
        self.gradient_peak = 0

    @property
    def weights(self) -> Sequence[tuple[Parameter, ParamShard]]:
        """Every parameter of this rank, with the shard that the optimizer updates."""
        return self._masters

    def swap_gradients(self) -> None:
        """Exchange the gradients summed so far with those that the call before set aside: at first none."""
        aside = {}
        for parameter, _ in self._masters:
            value = parameter.value
            if value.grad is not None:
                aside[value] = value.grad
            value.grad = self._swapped.get(value)
        self._swapped = aside
        for bucket in self._buckets:
            bucket.swap()

    def drop_swapped(self) -> None:
        """Forget the gradients that `swap_gradients` set aside."""
        self._swapped = {}
        for bucket in self._buckets:
            bucket.drop_swapped()

    def _shard(self, parameter: Parameter, masters: Masters) -> ParamShard:
        master = masters.take(parameter)
        if masters.stays_on_host(math.prod(parameter.shape)):
            return replace(parameter.shard(master), on_device=DeviceSide(parameter.local))
        # `data`: where masters are the model's own memory, a graph of an older version (`weight_versions.py`) may outlive an update.
        return parameter.shard(master.to(parameter.local.device).data)

    def before_backward(self, last: bool) -> None:
        self._order.arm(sending=last)

    def _send(self, number: int) -> None:
        bucket = self._buckets[number]
        row = bucket.finish()[0]
        shared = self._mesh.size(bucket.replicas) > 1
        self._pending.append(all_reduce(row, self._mesh.group(bucket.replicas)) if shared else lambda: row)

    def collect(self) -> None:
        self._order.collect()

    def finishing(self, values: Collection[nn.Parameter]) -> AbstractContextManager[None]:
        return self._order.finishing(values)

    @torch.no_grad()
    def reduce(self) -> None:
        left = [p.value.grad for p, _ in self._masters if p.value.grad is not None] + list(self._swapped.values())
        held = sum(bucket.bytes for bucket in self._buckets) + sum(own_bytes(grad) for grad in left)
        self.gradient_peak = max(self.gradient_peak, held)
        self._order.flush()
        masters = iter(self._masters)
        for bucket, wait in zip(self._buckets, self._pending, strict=True):
            parts = wait().to(self._precision.master).split(bucket.widths)
            for part, (_, shard) in zip(parts, masters, strict=False):
                shard.set_gradient(part.view_as(shard.tensor))
            bucket.clear()
        self._pending.clear()
        for parameter, shard in masters:  # parameters that are in no bucket
            grad = parameter.gradient()
            given = torch.zeros_like(parameter.local) if grad is None else grad
            shard.set_gradient(given.to(shard.tensor.dtype))

    def publish(self) -> None:
        for parameter, shard in self._masters:
            if shard.on_device is not None:
                shard.publish()
            elif self._precision.mixed:
                parameter.local.data.copy_(shard.tensor)  # `data`: as in `_shard`
            parameter.value.grad = None
            shard.set_gradient(None)

    def settle(self) -> None:
        """Does nothing: no bucket is in transit."""

    def after_validation(self) -> None:
        """Does nothing: nothing was gathered."""
