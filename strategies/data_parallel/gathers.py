"""ZeRO-1 and ZeRO-2's all-gather of updated parameters, bucket by bucket, in the order in which the next forward pass uses them.

A block waits for its own parameters when it is called. A model of another shape than embed → blocks → norm → head waits for all of
them at its start. On gloo `prefetch` buckets are in transit at a time. On NCCL all are at once that are received in place, as far as
their rounded copies are no more than `prefetch` buckets; one call gathers several of them (`CALL_BYTES`).
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import nn

from ..collectives import Arrivals, all_gather, all_gather_together
from ..comm_overlap import Overlap
from ..mesh import Mesh
from ..precision import Precision
from .buckets import Bucket

#: One call gathers at most this many bytes, or one bucket. At 100 GB/s they take 0.7 ms: beside that the tens of microseconds that a call
#: costs do not count, and no block waits long for those that come with it.
CALL_BYTES: Final = 64 << 20


@dataclass(frozen=True)
class _Call:
    """A call in transit, for the buckets `numbers`; it takes `held` bytes of memory."""

    numbers: list[int]
    wait: Arrivals
    held: int


class Gathers:
    """Sends this rank's row of each bucket, rounded to the compute dtype, and receives the bucket's parameters.

    `parts` are the modules that use them.
    """

    def __init__(
        self,
        buckets: Sequence[Bucket],
        rows: Sequence[torch.Tensor],
        parts: Sequence[nn.Module],
        mesh: Mesh,
        precision: Precision,
        overlap: Overlap,
    ) -> None:
        self._buckets, self._rows, self._mesh, self._precision = buckets, rows, mesh, precision
        self._prefetch, self._budget = overlap.prefetch, overlap.prefetch * overlap.bucket_bytes
        self._uses = uses(parts)
        self._turns = sorted(range(len(buckets)), key=self._first_use)
        self._unasked: deque[int] = deque()
        self._coming: deque[_Call] = deque()
        self._held = 0  # bytes of memory that the calls in transit take
        self._watch(parts)

    def start(self) -> None:
        """Start to gather the parameters; those of the step before have arrived first."""
        self.settle()
        self._unasked.extend(self._turns)
        self._send()

    def _send(self) -> None:
        while self._unasked and self._has_room(self._message_bytes(self._unasked[0])):
            numbers = self._next_call()
            held = sum(map(self._message_bytes, numbers))
            self._coming.append(_Call(numbers, self._gather(numbers), held))
            self._held += held

    def _next_call(self) -> list[int]:
        """The next bucket; on NCCL, if it lands in place, with those after it that do so on the same axis, as many as fit one call."""
        numbers = [self._unasked.popleft()]
        axis, gathered, held = self._lands(numbers[0]), self._bytes(numbers[0]), self._message_bytes(numbers[0])
        while axis and self._unasked and self._lands(self._unasked[0]) == axis:
            gathered += self._bytes(self._unasked[0])
            held += self._message_bytes(self._unasked[0])
            if gathered > CALL_BYTES or self._held + held > self._budget:
                break
            numbers.append(self._unasked.popleft())
        return numbers

    def _lands(self, number: int) -> str | None:
        """The axis over which NCCL gathers the bucket in place; None if it does not."""
        bucket = self._buckets[number]
        return bucket.replicas if self._mesh.reduces and bucket.parts > 1 and bucket.landing is not None else None

    def _gather(self, numbers: Sequence[int]) -> Arrivals:
        """Start to gather a bucket, or several in one call."""
        buckets = [self._buckets[number] for number in numbers]
        rows = [self._rows[number].to(self._precision.compute) for number in numbers]
        landings = [bucket.landing for bucket in buckets if bucket.landing is not None]
        if len(numbers) > 1:
            return all_gather_together(rows, self._mesh.group(buckets[0].replicas), landings)
        wait = all_gather(rows[0], buckets[0].group(self._mesh), buckets[0].landing)
        return lambda: [wait()]

    def _has_room(self, more: int) -> bool:
        """Whether `more` bytes may be in transit. NCCL takes any number of messages, whose memory is bounded; gloo's threads few."""
        if not self._mesh.reduces or not self._coming:
            return len(self._coming) < self._prefetch
        return self._held + more <= self._budget

    def _bytes(self, number: int) -> int:
        """Bytes that are gathered."""
        return self._buckets[number].parts * self._buckets[number].width * self._precision.compute.itemsize

    def _message_bytes(self, number: int) -> int:
        """Memory that gathering the bucket takes: a rounded copy of this rank's values, and all values unless they land in place."""
        bucket, whole = self._buckets[number], self._bytes(number)
        copied = self._rows[number].dtype != self._precision.compute
        return (0 if bucket.landing is not None else whole) + (whole // bucket.parts if copied else 0)

    @torch.no_grad()
    def settle(self, needed: Iterable[int] | None = None) -> None:
        """Wait until the buckets `needed` (default: all) have their new values."""
        missing = {number for call in self._coming for number in call.numbers} | set(self._unasked)
        if needed is not None:
            missing &= set(needed)
        while missing:
            call = self._coming.popleft()
            for number, rows in zip(call.numbers, call.wait(), strict=True):
                self._buckets[number].spread(rows)
            self._held -= call.held
            missing.difference_update(call.numbers)
            self._send()

    def _first_use(self, number: int) -> int:
        return min(self._uses[parameter.value] for parameter in self._buckets[number].parameters)

    def _watch(self, parts: Sequence[nn.Module]) -> None:
        for turn, module in enumerate(callers(parts)):
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


def callers(parts: Sequence[nn.Module]) -> list[nn.Module]:
    """The modules that wait for their parameters, in order of use: each part, then its blocks, if it is certain to call them."""
    return [module for part in parts for module in (part, *_called(part).values())]


def _called(part: nn.Module) -> dict[str, nn.Module]:
    """The blocks that the part calls, by key. It says so: others may take a block's parameters without a call."""
    blocks = getattr(part, "blocks", None)
    return dict(blocks.items()) if isinstance(blocks, nn.ModuleDict) and getattr(part, "calls_blocks", False) else {}


def uses(parts: Sequence[nn.Module]) -> dict[nn.Parameter, int]:
    """Parameter → index in `callers` of the module that waits for it: its block, or the part if it is in no or several blocks.

    The first part that uses it waits: both ends of a pipeline on one rank share a tied weight.
    """
    uses: dict[nn.Parameter, int] = {}
    turn = 0
    for part in parts:
        inside = list(_called(part))
        turns = {f"blocks.{key}": number for number, key in enumerate(inside, turn + 1)}
        for name, value in part.named_parameters(remove_duplicate=False):
            number = turns.get(".".join(name.split(".")[:2]), turn)
            known = uses.get(value, number)
            uses[value] = number if known == number else min(known, turn)
        turn += 1 + len(inside)
    return uses
