"""Snapshots: a rank's training state of one step, copied into its actor's memory while the next step computes.

Rules that it keeps: all ranks take snapshots of the same steps, so that there is a step that all of them have; a copy ends before the
optimizer changes what it copies; if memory cannot be allocated, there are no snapshots, and the run continues.

A snapshot is the same slices as a checkpoint's (`strategies/param_shard.py`), one after the other, and JSON: what restores loop and
optimizer, and rank 0's events of the last seconds, so that no step's record is lost with a rank and its actor.
"""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from ....strategies.param_shard import ParamShard
from ...snapshot.header import UNFINISHED
from ...snapshot.replication import SnapshotNotifier
from ..event_outbox import EventOutbox
from ..instruments import Instruments
from ..reports import Reporter
from ..segment_writer import SegmentWriter
from ..snapshot_allocation import Allocation
from ..snapshot_cost import cost_on
from ..step_record import StepRecord, StepStats
from .base import Callback

T = TypeVar("T")


class Snapshotting(Callback):
    """Takes the snapshots that are due. A step's events are buffered in `outbox` until its snapshot is whole and copied."""

    def __init__(
        self,
        snapshots: "Snapshots",
        facts: Callable[[int], dict[str, Any]],
        outbox: EventOutbox,
        instruments: Instruments,
        allocation: Allocation,
        reporter: Reporter,
    ) -> None:
        """`facts(step)` returns a snapshot's state beside the shards."""
        self.snapshots, self._facts, self._outbox, self._instruments = snapshots, facts, outbox, instruments
        self._allocation: Allocation | None = allocation  # None: it is done
        self._reporter = reporter

    def before_serving(self, step: int) -> None:
        self._settle(step)

    def meets(self, step: int) -> bool:
        return self.snapshots.due(step)

    def after_reduce(self, step: int) -> None:
        # Before the collective: so no rank begins its next snapshot while another rank's last one is incomplete, or not copied.
        self._settle(step)

    def before_update(self, stats: StepStats) -> None:
        if self.snapshots.due(stats.step):
            self._outbox.buffer()

    def after_step(self, record: StepRecord) -> None:
        step = record.step
        if self._allocation is not None:  # after a step, when all other memory is allocated
            self._allocate(self._allocation, step)
        step_s = self.snapshots.cost.length(record)
        self.snapshots.after(step, step_s, lambda: self._facts(step), self._outbox.flush)

    def before_return(self, step: int) -> None:
        """Take a snapshot, which says that what follows the step is still to be done."""
        with self._instruments.phase("snapshot", step):
            self.snapshots.take(step, self._facts(step) | {UNFINISHED: True}, self._outbox.flush)

    def _settle(self, step: int) -> None:
        with self._instruments.phase("snapshot"):
            self.snapshots.settle(copied=self.snapshots.due(step))

    def _allocate(self, allocation: Allocation, step: int) -> None:
        """Allocate the memory of all snapshots, or report why there are none. Collective."""
        with self._instruments.phase("snapshot", step):
            refusal, self._allocation = self.snapshots.allocate(allocation), None
        if refusal is not None:
            self._reporter.incident("snapshots_off", refusal, step)
            self._outbox.flush()

    def close(self) -> None:
        self.snapshots.close()  # and so the events that wait for the last one


class Snapshots:
    """Writes one rank's state into its slots, every `every` steps. Without slots (plain torchrun) it does nothing."""

    def __init__(
        self,
        fds: Sequence[int],
        every: int | None,
        shards: Sequence[ParamShard],
        device: torch.device,
        instruments: Instruments,
        notifier: SnapshotNotifier | None = None,
    ) -> None:
        """`every`: steps between two snapshots; 0: none; None: as many as cost at most 2% of the time (`snapshot_cost.py`).

        `notifier`: notifies the actor, which copies the snapshots to another node.
        """
        self._wanted = bool(fds) and every != 0  # the same on all ranks, even if one of them later has no memory
        self._segments = SegmentWriter(fds, shards, device) if self._wanted else None
        self._every = every
        self._device, self._instruments = device, instruments
        self._seen = self._next = 0
        self.cost = cost_on(device)
        self._copy_s = 0.0
        self._newest: int | None = None  # the step of the newest snapshot
        self._running: Future[float] | None = None
        self._notifier = notifier if self._wanted else None
        self._copying: Future[None] | None = None
        self._writer = ThreadPoolExecutor(1, "snapshot") if self._wanted else None

    def due(self, step: int) -> bool:
        """Whether a snapshot of the state after this step is due."""
        return self._wanted and step >= self._next

    def allocate(self, allocation: Allocation) -> str | None:
        """Allocate all memory before the first snapshot. Returns why there will be no snapshots on any rank. Collective."""
        refusal = None if self._segments is None else allocation.refusal(self._segments)
        if refusal is not None:
            self._wanted = False
            self._release()
        return refusal

    def after(self, step: int, step_s: float, facts: Callable[[], dict[str, Any]], then: Callable[[], None]) -> None:
        """Begin a snapshot if one is due. Call it after each step. Collective while `every` is undecided.

        Calls `then`, in any thread, once the snapshot is complete and copied, or has failed.
        """
        if not self._wanted:
            return
        self._seen += 1
        if self._every is None:
            self.cost.add(step_s, copying=self._newest == step - 1)
            if self._seen == self.cost.steps:
                self.settle()
                self._every = _decide(self._interval(step_s), self._device)
        if self.due(step):
            self._next = step + (self._every or self.cost.gap(self._seen))
            self._newest = step
            self._begin(step, facts(), then)

    def take(self, step: int, facts: dict[str, Any], then: Callable[[], None]) -> None:
        """Take a snapshot now, whether or not it is due, and wait until it is complete and copied. `then` as in `after`."""
        self._begin(step, facts, then)
        self.settle()

    def copy(self, step: int) -> None:
        """Have the snapshot of `step`, which was restored, copied to another node."""
        if self._notifier is not None:
            self._copying = self._submit(self._copied, step)

    def settle(self, copied: bool = True) -> None:
        """Wait for the running snapshot, before the state changes. `copied`: wait also for its copy on another node, which
        must be complete before the older snapshot is overwritten.
        """
        self._settle_own()
        if copied and self._copying is not None:
            with self._instruments.phase("copy of a snapshot", self._instruments.heartbeat.step):
                self._copying.result()
            self._copying = None

    def close(self) -> None:
        """Wait for the running snapshot, then unmap the segments. They stay complete."""
        try:
            self.settle()
        finally:
            if self._segments is not None:
                self._segments.close()

    def _release(self) -> None:
        """Take no more snapshots on this rank, and free their memory."""
        if self._segments is not None:
            self._segments.close(free=True)
            self._segments = None

    def _settle_own(self) -> None:
        """Wait for the running snapshot. A failure is logged, and ends all snapshots."""
        if self._running is None:
            return
        if not self._running.done():  # the first ones pin their memory, which may take longer than a hang's time limit
            with self._instruments.phase("write of a snapshot", self._instruments.heartbeat.step):
                wait([self._running])
        try:
            self._copy_s = self._running.result()
        except OSError as error:
            print(f"no more snapshots: {error}", flush=True)  # noqa: T201  (a trainer's standard output is its log)
            self._release()
        finally:
            self._running = None

    def _begin(self, step: int, facts: dict[str, Any], then: Callable[[], None]) -> None:
        self.settle()
        if self._segments is None:
            then()
            return
        self._running = self._submit(self._segments.write, step, facts, self._segments.ready())
        self._copying = self._submit(self._follow_up, self._running, step, then)

    def _submit(self, work: Callable[..., T], *arguments: Any) -> "Future[T]":
        """Run `work` in the only thread, after all work submitted before."""
        assert self._writer is not None
        return self._writer.submit(work, *arguments)

    def _follow_up(self, written: "Future[float]", step: int, then: Callable[[], None]) -> None:
        try:
            if written.exception() is None:
                self._copied(step)
        finally:
            then()

    def _copied(self, step: int) -> None:
        if self._notifier is not None:
            self._notifier.notify(step)
            self._notifier.wait()

    def _interval(self, step_s: float) -> float:
        """Minimum number of steps between two snapshots, by their cost, and by the time that their replication takes."""
        cost_s, took_s = (self._notifier.cost_s, self._notifier.took_s) if self._notifier else (0.0, 0.0)
        return max(self.cost.interval(self._copy_s, cost_s), took_s / max(step_s, 1e-9))


def _decide(needed: float, device: torch.device) -> int:
    """Steps between two snapshots: the maximum that any rank needs. Collective."""
    worst = torch.tensor([needed], dtype=torch.float64, device=device)
    dist.all_reduce(worst, dist.ReduceOp.MAX)
    return max(1, math.ceil(worst.item()))
