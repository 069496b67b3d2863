"""One mean per name and step of what a model of the user's own logs, over all micro-batches and all ranks that log it.

Sums and counts are added up by the step's only collective, so a name costs no further wait. For that all ranks need the same names in
the same order: a rank with a new name says so in the same collective, and then all ranks exchange their names, in that step only.

The mean is that of one process because micro-batches and ranks have equal parts of the batch. Tensor ranks log the same value, or each
that of its shard. A pipeline stage logs what its own blocks log.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from .mesh import Mesh
from .telemetry.current import wait_on
from .telemetry.logged_values import MOST_NAMES, LoggedValues, Number


class LoggedMeans:
    """The means of the steps of one loop. Unless `wanted`, there are none, and no number is in the collective."""

    def __init__(self, values: LoggedValues, mesh: Mesh, wanted: bool) -> None:
        self._values, self._mesh, self._wanted = values, mesh, wanted
        self._names: tuple[str, ...] = ()  # those that all ranks know

    def begin(self) -> None:
        """Before the passes of a step."""
        self._values.begin()

    def ballot(self) -> list[Number]:
        """This rank's summands: 1 if it has a new name, then sum and count of each name that all ranks know."""
        if not self._wanted:
            return []
        new = float(any(name not in self._names for name in self._values.sums))
        return [new, *self._pairs(self._names)]

    def means(self, sums: Sequence[float]) -> dict[str, float]:
        """Name → mean, from the sums of all ranks' ballots. Collective in a step in which a name is new. Raises ValueError."""
        if not self._wanted:
            return {}
        new, *pairs = sums
        found = _means(self._names, pairs)
        if new and (names := self._exchanged()):  # in a dry run `new` is always read as 1
            found |= _means(names, self._summed(names))
            self._names += names
        return found

    def _pairs(self, names: Sequence[str]) -> list[Number]:
        return [number for name in names for number in self._values.sums.get(name, (0.0, 0))]

    def _exchanged(self) -> tuple[str, ...]:
        """The names that are new on any rank, in the same order on all."""
        mine = [name for name in self._values.sums if name not in self._names]
        every: list[Any] = [mine] * self._mesh.layout.world_size
        if self._mesh.layout.world_size > 1:
            wait_on(lambda: dist.all_gather_object(every, mine), "all_gather")
        names = tuple(sorted({name for one in every for name in one}))
        if len(self._names) + len(names) > MOST_NAMES:
            raise ValueError(f"the ranks log more than {MOST_NAMES} names in all, such as {', '.join(names[:4])}")
        return names

    def _summed(self, names: Sequence[str]) -> list[float]:
        numbers = torch.zeros(2 * len(names), dtype=torch.float64, device=self._mesh.device)
        for place, number in enumerate(self._pairs(names)):
            put(numbers, place, number)
        if self._mesh.layout.world_size > 1:
            wait_on(lambda: dist.all_reduce(numbers), "all_reduce")
        found: list[float] = numbers.tolist()
        return found


def put(numbers: torch.Tensor, place: int, number: Number) -> None:
    """Set one of `numbers`. The host does not wait: a float is a kernel's argument, and a tensor is on the same device."""
    if isinstance(number, torch.Tensor):
        numbers[place].copy_(number)
    else:
        numbers[place].fill_(number)


def _means(names: Sequence[str], pairs: Sequence[float]) -> dict[str, float]:
    """Without the names that no rank has logged. A mean that is not finite is nan."""
    found = {}
    for name, total, count in zip(names, pairs[::2], pairs[1::2], strict=True):
        if count:
            found[name] = total / count if math.isfinite(total) else math.nan
    return found
