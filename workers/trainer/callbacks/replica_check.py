"""Checks that replicas have the same bits, every few steps and before each checkpoint, so that every checkpoint was checked.

A difference ends the generation. Nothing in memory can be trusted then, so the gang is repaired from the newest checkpoint.
"""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
import torch.distributed as dist

from ....strategies.layout import own_clocks
from ....strategies.param_shard import ParamShard
from ....strategies.replica_checksum import ReplicaMismatch, find_mismatch, replicated_slices
from ....strategies.telemetry.current import wait_on
from ...messages.rank_set import format_ranks
from ..build import TrainerParts
from ..instruments import Instruments
from ..step_record import StepRecord
from .base import Callback

#: By default comparisons take at most this share of the time.
COST: Final = 0.005
#: The step whose comparison determines how often that is; the first comparisons take longer.
DECIDE_AT: Final = 3
#: Names of parameters that an incident quotes.
MOST_NAMES: Final = 3


class ReplicasDiffer(RuntimeError):
    """Replicas have different bits: memory or a computation failed on some rank."""

    def __init__(self, found: ReplicaMismatch, step: int, agreed: int | None) -> None:
        many = "" if len(found.names) <= MOST_NAMES else f" and {len(found.names) - MOST_NAMES} more"
        what = ", ".join(found.names[:MOST_NAMES]) + many
        who = format_ranks(found.ranks)
        certain = f"{who} {'differ' if len(found.ranks) > 1 else 'differs'} from the others"
        unsure = f"{who} differ, and there is no majority to show who is right"
        since = "they have never been compared before" if agreed is None else f"after step {agreed} all were equal"
        super().__init__(
            f"after step {step} replicas of {what} differ: {certain if found.certain else unsure}; {since}"
        )
        rank = found.ranks[0] if found.certain else None
        self.facts: dict[str, Any] = {"cause": "replica_mismatch", "rank": rank, "ranks": list(found.ranks)}
        self.facts |= {"unattributed": not found.certain}
        self.facts |= {"parameters": list(found.names[:MOST_NAMES]), "agreed": agreed}


class ReplicaCheck(Callback):
    """Compares the replicas of `shards` and of the model's parameters, as often as the spec requires and before each checkpoint.

    `saves(step)`: whether a checkpoint of the step follows.
    """

    def __init__(
        self, parts: TrainerParts, shards: Sequence[ParamShard], saves: Callable[[int], bool], instruments: Instruments
    ) -> None:
        # None: as `COST` allows; 0: never. Workers with clocks of their own have values of different steps.
        every = 0 if own_clocks(parts.mesh.layout) else parts.spec.replica_check.every
        self._parts, self._every, self._saves, self._seen = parts, every, saves, 0
        self._instruments = instruments
        self._agreed: int | None = None
        parallel, mesh = parts.parallel, parts.mesh
        self._slices = (
            replicated_slices(parallel.parts, shards, mesh) if mesh.layout.world_size > 1 and every != 0 else []
        )
        self._wanted = every != 0 and mesh.layout.world_size > 1 and _largest(len(self._slices), mesh.device) > 0

    def after_step(self, record: StepRecord) -> None:
        """Raises `ReplicasDiffer`, on all ranks."""
        if not self._wanted:
            return
        self._seen += 1
        step, decides = record.step, self._every is None and self._seen == DECIDE_AT
        saves = self._saves(step) or bool(record.stats.stop)
        if saves or decides or (self._every is not None and step % self._every == 0):
            with self._instruments.phase("replica check"):
                seconds = self._compare(step)
                if decides:
                    cost = seconds / max(record.seconds, 1e-9)
                    self._every = max(1, math.ceil(_largest(cost, self._parts.mesh.device) / COST))

    def _compare(self, step: int) -> float:
        """Compare; returns the seconds that it took."""
        began = time.monotonic()
        self._parts.parallel.data.settle()
        found = find_mismatch(self._slices, self._parts.mesh)
        if found is not None:
            raise ReplicasDiffer(found, step, self._agreed)
        self._agreed = step
        return time.monotonic() - began


def _largest(number: float, device: torch.device) -> float:
    """The largest of all ranks' numbers. Collective over the world."""
    largest = torch.tensor([number], dtype=torch.float64, device=device)
    wait_on(lambda: dist.all_reduce(largest, dist.ReduceOp.MAX), "all_reduce")
    return largest.item()
