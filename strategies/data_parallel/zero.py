"""ZeRO stages 1 and 2: optimizer state, and gradients, sharded over the data axis (Rajbhandari et al., 1910.02054, sections 5.1 and 5.2).

Each rank updates its chunk of every parameter (dimension 0 split as by `torch.chunk`) and gathers the others'.

Traffic per step: Ψ(N−1)/N reduce-scattered and Ψ(N−1)/N gathered elements. Stage 1 adds micro-batches up locally and sends once.
Stage 2 reduces each micro-batch's gradients at once and keeps its own chunk only, so its reduce-scatter repeats per micro-batch.
Under a pipeline both reduce after the last micro-batch: a schedule interleaves micro-batches, and whole gradients must exist until
then.

Memory in mixed precision (K = 12: fp32 values and two moments): stage 1 holds 6Ψ + 12Ψ/N bytes, stage 2 2Ψ + 16Ψ/N, and at most
`prefetch` buckets in transit. Gradients are summed in fp32 over micro-batches and ranks, and sent in fp32: NCCL's reduce-scatter sums
in the dtype of what it sends. On gloo stage 2 sends one micro-batch's gradient as it is, in the compute dtype, and the receiver sums it
in fp32. Values are gathered in the compute dtype.

With gradients in the compute dtype it is 4Ψ + 12Ψ/N and 2Ψ + 14Ψ/N bytes, as the paper counts them: they are then sent and stored
in it. On gloo the sum over ranks is computed in fp32 and rounded once; the sum over micro-batches is rounded with each. The optimizer's
step reads the own chunk's gradient in fp32: 4Ψ/N bytes more, from `reduce` to `publish`.

Stage 1's buckets stay allocated from step to step: gradients are summed in the same memory, and updated parameters are received in it.

Reduction overlaps with the backward pass. Gathering overlaps with the next forward pass: a block waits for its own parameters when
it is called. A model of another shape than embed → blocks → norm → head waits for all of them at its start. On NCCL all buckets are in
transit at once that need no memory of their own: gradients that are reduced in place, and values that are received in place, as
far as their rounded copies are no more than `prefetch` buckets.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence

import torch
import torch.distributed as dist
from torch import nn

from ..collectives import Pending, all_gather, exchange_and_sum, reduce_scatter
from ..comm_overlap import Overlap
from ..mesh import Mesh
from ..param_shard import DimShard, ParamShard, parameters
from ..precision import Precision
from .buckets import Bucket, BucketOrder, fill_buckets, own_bytes
from .master_weights import Masters


class ShardedOptimizer:
    """Sends buckets of gradients during backward, and receives buckets of parameters during forward."""

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
        self._reduce_scatter = reduce_scatter if mesh.reduces else exchange_and_sum
        self._budget = overlap.prefetch * overlap.bucket_bytes
        wide = sent != precision.compute
        filled = fill_buckets(parameters(parts, mesh), sent.itemsize, overlap.bucket_bytes)
        # Under a pipeline, gradients that need not be wider stay with their parameters until `reduce`.
        self._stay = stage == 1 and (wide or mesh.size("pipeline") == 1)
        self._buckets = [Bucket(bucket, mesh.size(bucket[0].replicas), self._stay, sent) for bucket in filled]
        self._masters = [self._master(bucket) for bucket in self._buckets]
        self._shards = [
            self._own_shards(bucket, row, masters) for bucket, row in zip(self._buckets, self._masters, strict=True)
        ]
        self.shards = [shard for bucket in self._shards for shard in bucket if shard.tensor.numel()]
        self._order = BucketOrder(self._buckets, self._send, always=wide)
        self._sent: deque[tuple[int, Pending]] = deque()
        self._sums: list[torch.Tensor | None] = [None] * len(self._buckets)
        self._uses = _uses(parts)
        self._turns = sorted(range(len(self._buckets)), key=self._first_use)
        self._unasked: deque[int] = deque()
        self._coming: deque[tuple[int, Pending]] = deque()
        self._watch(parts)
        self.gradient_peak = 0

    def _master(self, bucket: Bucket) -> torch.Tensor:
        """This rank's row of values, which the optimizer updates in place."""
        device = bucket.parameters[0].local.device
        return torch.zeros(bucket.width, dtype=self._precision.master, device=device)

    def _own_shards(self, bucket: Bucket, row: torch.Tensor, masters: Masters) -> list[ParamShard]:
        found = []
        cut = DimShard(bucket.replicas, 0, bucket.parts, self._mesh.index(bucket.replicas))
        for parameter, part in zip(bucket.parameters, row.split(bucket.widths), strict=True):
            own = masters.take(parameter)
            tensor = part[: own.numel()].view_as(own)
            found.append(parameter.shard(tensor.copy_(own), cut))
        return found

    def before_backward(self, last: bool) -> None:
        self.settle()
        if self._order.sending:  # the previous micro-batch
            self._order.flush()
            self._receive_all()
        self._order.arm(sending=last or self._each_microbatch)

    def _send(self, number: int) -> None:
        bucket = self._buckets[number]
        rows = bucket.finish()
        self.gradient_peak = max(self.gradient_peak, self._gradient_bytes())
        # A reduce-scatter from rows that stay into this rank's own row needs no memory: as many as there are may be in transit.
        while len(self._sent) >= self._prefetch and not (self._mesh.reduces and self._stay):
            self._receive()
        into = rows[self._mesh.index(bucket.replicas)] if self._stay else None
        self._sent.append((number, self._reduce_scatter(rows, self._group(bucket), into)))

    def _group(self, bucket: Bucket) -> dist.ProcessGroup | None:
        """Who shares the bucket; None: this rank alone, as with experts of which no other rank has a copy."""
        return self._mesh.group(bucket.replicas) if bucket.parts > 1 else None

    def _receive(self) -> None:
        """Wait for the oldest bucket in transit and add it to this rank's sums."""
        number, wait = self._sent.popleft()
        arrived, so_far = wait(), self._sums[number]
        self._sums[number] = arrived.to(self._precision.gradients) if so_far is None else so_far.add_(arrived)
        if not self._stay:
            self._buckets[number].clear()

    def collect(self) -> None:
        self._order.collect()

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
        self._receive_all()
        for number, shards in enumerate(self._shards):
            row = self._sums[number]
            assert row is not None
            self._sums[number] = None
            parts = row.to(self._precision.master).split(self._buckets[number].widths)
            for shard, part in zip(shards, parts, strict=True):
                shard.tensor.grad = part[: shard.tensor.numel()].view_as(shard.tensor)

    def publish(self) -> None:
        """Start to gather the updated parameters, in the order in which the next forward pass uses them."""
        for shard in self.shards:
            shard.tensor.grad = None
        for bucket in self._buckets:
            bucket.clear()
            for parameter in bucket.parameters:
                parameter.value.grad = None
        self.settle()
        self._unasked.extend(self._turns)
        self._ask()

    def _ask(self) -> None:
        while self._unasked and self._has_room(self._unasked[0]):
            number = self._unasked.popleft()
            bucket, row = self._buckets[number], self._masters[number].to(self._precision.compute)
            self._coming.append((number, all_gather(row, self._group(bucket), bucket.landing)))

    def _has_room(self, number: int) -> bool:
        """Whether the bucket may be gathered now. NCCL takes any number of messages, whose memory is bounded; gloo's threads few."""
        if not self._mesh.reduces or not self._coming:
            return len(self._coming) < self._prefetch
        return sum(self._message_bytes(coming) for coming in (number, *(n for n, _ in self._coming))) <= self._budget

    def _message_bytes(self, number: int) -> int:
        """Memory that gathering the bucket takes: the rounded values of this rank, and all of them unless they land in place."""
        bucket, size = self._buckets[number], self._precision.compute.itemsize
        whole = 0 if bucket.landing is not None else bucket.parts * bucket.width * size
        return whole + (bucket.width * size if self._precision.mixed else 0)

    @torch.no_grad()
    def settle(self, needed: Iterable[int] | None = None) -> None:
        """Wait until the buckets `needed` (default: all) have their new values."""
        missing = {number for number, _ in self._coming} | set(self._unasked)
        if needed is not None:
            missing &= set(needed)
        while missing:
            number, wait = self._coming.popleft()
            self._buckets[number].spread(wait())
            missing.discard(number)
            self._ask()

    def _first_use(self, number: int) -> int:
        return min(self._uses[parameter.value] for parameter in self._buckets[number].parameters)

    def _watch(self, parts: Sequence[nn.Module]) -> None:
        for turn, module in enumerate(_callers(parts)):
            needed = [
                number
                for number, bucket in enumerate(self._buckets)
                if any(self._uses[p.value] == turn for p in bucket.parameters)
            ]
            if needed:
                module.register_forward_pre_hook(self._hook(needed))

    def _hook(self, needed: Sequence[int]) -> Callable[[nn.Module, object], None]:
        def before_forward(_: nn.Module, __: object) -> None:
            if self._coming:
                self.settle(needed)

        hook: Callable[[nn.Module, object], None] = torch.compiler.disable(before_forward)
        return hook

    def after_validation(self) -> None:
        """Does nothing: no values were gathered for validation only."""


def _left_on(buckets: Sequence[Bucket]) -> int:
    """Bytes of gradients that are not in a bucket yet."""
    grads = [p.value.grad for bucket in buckets for p in bucket.parameters]
    return sum(own_bytes(grad) for grad in grads if grad is not None)


def _callers(parts: Sequence[nn.Module]) -> list[nn.Module]:
    """The modules that wait for their parameters, in order of use: each part, then its blocks, if it is certain to call them."""
    found: list[nn.Module] = []
    for part in parts:
        blocks = getattr(part, "blocks", None)
        found += [part, *(blocks.values() if isinstance(blocks, nn.ModuleDict) else ())]
    return found


def _uses(parts: Sequence[nn.Module]) -> dict[nn.Parameter, int]:
    """Parameter → index in `_callers` of the module that waits for it: its block, or the part if it is in no or several blocks."""
    uses: dict[nn.Parameter, int] = {}
    turn = 0
    for part in parts:
        blocks = getattr(part, "blocks", None)
        inside = list(blocks) if isinstance(blocks, nn.ModuleDict) else []
        turns = {f"blocks.{key}": number for number, key in enumerate(inside, turn + 1)}
        for name, value in part.named_parameters(remove_duplicate=False):
            number = turns.get(".".join(name.split(".")[:2]), turn)
            uses[value] = number if uses.get(value, number) == number else turn
        turn += 1 + len(inside)
    return uses
