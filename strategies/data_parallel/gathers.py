"""ZeRO-1 and ZeRO-2's all-gather of updated parameters, bucket by bucket, in the order in which the next forward pass uses them.

A block waits for its own parameters when it is called. A model of another shape than embed → blocks → norm → head waits for all of
them at its start. On gloo `prefetch` buckets are in transit at a time. On NCCL all are at once that are received in place, as far as
their rounded copies are no more than `prefetch` buckets.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import nn

from ..collectives import Pending, all_gather
from ..comm_overlap import Overlap
from ..mesh import Mesh
from ..precision import Precision
from .buckets import Bucket


class Gathers:
    """Sends this rank's row `masters[i]` of bucket i, and receives the bucket's parameters. `parts` are the modules that use them."""

    def __init__(
        self,
        buckets: Sequence[Bucket],
        masters: Sequence[torch.Tensor],
        parts: Sequence[nn.Module],
        mesh: Mesh,
        precision: Precision,
        overlap: Overlap,
    ) -> None:
        self._buckets, self._masters, self._mesh, self._precision = buckets, masters, mesh, precision
        self._prefetch, self._budget = overlap.prefetch, overlap.prefetch * overlap.bucket_bytes
        self._uses = _uses(parts)
        self._turns = sorted(range(len(buckets)), key=self._first_use)
        self._unasked: deque[int] = deque()
        self._coming: deque[tuple[int, Pending]] = deque()
        self._watch(parts)

    def start(self) -> None:
        """Start to gather the parameters; those of the step before have arrived first."""
        self.settle()
        self._unasked.extend(self._turns)
        self._ask()

    def _ask(self) -> None:
        while self._unasked and self._has_room(self._unasked[0]):
            number = self._unasked.popleft()
            bucket, row = self._buckets[number], self._masters[number].to(self._precision.compute)
            self._coming.append((number, all_gather(row, bucket.group(self._mesh), bucket.landing)))

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


def _callers(parts: Sequence[nn.Module]) -> list[nn.Module]:
    """The modules that wait for their parameters, in order of use: each part, then its blocks, if it is certain to call them."""
    found: list[nn.Module] = []
    for part in parts:
        blocks = getattr(part, "blocks", None)
        found += [part, *(blocks.values() if isinstance(blocks, nn.ModuleDict) else ())]
    return found


def _uses(parts: Sequence[nn.Module]) -> dict[nn.Parameter, int]:
    """Parameter → index in `_callers` of the module that waits for it: its block, or the part if it is in no or several blocks.

    The first part that uses it waits: both ends of a pipeline on one rank share a tied weight.
    """
    uses: dict[nn.Parameter, int] = {}
    turn = 0
    for part in parts:
        blocks = getattr(part, "blocks", None)
        inside = list(blocks) if isinstance(blocks, nn.ModuleDict) else []
        turns = {f"blocks.{key}": number for number, key in enumerate(inside, turn + 1)}
        for name, value in part.named_parameters(remove_duplicate=False):
            number = turns.get(".".join(name.split(".")[:2]), turn)
            known = uses.get(value, number)
            uses[value] = number if known == number else min(known, turn)
        turn += 1 + len(inside)
    return uses
