"""Snapshots: a rank's training state of one step, copied into its actor's memory while the next step computes.

Rules that it keeps: all ranks take snapshots of the same steps, so that there is a step that all of them have; a copy ends before the
optimizer changes what it copies; if memory cannot be allocated, the snapshots end, and the run continues.

A snapshot is the same rectangles as a checkpoint's (`strategies/param_shard.py`), one after the other, and JSON: what restores loop and
optimizer, and rank 0's events of the last seconds, so that no step's record is lost with a rank and its actor.
"""

import json
import math
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar

import torch
import torch.distributed as dist

from ....strategies.param_shard import ParamShard
from ...snapshot import shared_memory
from ...snapshot.header import aligned
from ...snapshot.replication import SnapshotNotifier
from ..event_outbox import EventOutbox
from ..instruments import Instruments
from ..step_record import StepRecord, StepStats
from .base import Callback

T = TypeVar("T")

#: The share of a step's time that the copies may take where the spec does not say how often to take them: half of the 2% that
#: snapshots may cost in all, as a copy also takes caches and memory bandwidth from the step beside it. On CPUs it is the share of the
#: processor time that a rank's step takes: where ranks share cores, that is less than the step's length.
COST: Final = 0.01
#: The minimum share of a step that counts as a rank's work. The rest it waits, or other processes have its core.
MOST_IDLE: Final = 0.1
#: The step after which the interval is decided: the first steps allocate buffers.
DECIDE_AT: Final = 3


class SnapshotError(RuntimeError):
    """A snapshot does not fit the state to restore."""

    code = "snapshot_corrupt"


class Snapshotting(Callback):
    """Takes the snapshots that are due. A step's events are buffered in `outbox` until its snapshot is whole and copied."""

    def __init__(
        self,
        snapshots: "Snapshots",
        facts: Callable[[int], dict[str, Any]],
        outbox: EventOutbox,
        instruments: Instruments,
    ) -> None:
        """`facts(step)` returns a snapshot's state beside the shards."""
        self.snapshots, self._facts, self._outbox, self._instruments = snapshots, facts, outbox, instruments

    def after_reduce(self, step: int) -> None:
        # Before the collective: so no rank begins its next snapshot while another rank's last one is incomplete, or not copied.
        with self._instruments.phase("snapshot"):
            self.snapshots.settle(copied=self.snapshots.due(step))

    def before_update(self, stats: StepStats) -> None:
        if self.snapshots.due(stats.step):
            self._outbox.buffer()

    def after_step(self, record: StepRecord) -> None:
        step = record.step
        self.snapshots.after(step, record.seconds, lambda: self._facts(step), self._outbox.flush)

    def close(self) -> None:
        self.snapshots.settle()  # and so the events that wait for it


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
        """`every`: steps between two snapshots; 0: none; None: so that they take at most `COST` of the time.

        `notifier`: notifies the actor, which copies the snapshots to another node.
        """
        self._wanted = bool(fds) and every != 0  # the same on all ranks, even if one of them later has no memory
        self._fds = list(fds) if self._wanted else []
        self._every = every
        self._shards, self._device, self._instruments = shards, device, instruments
        self._seen = self._next = 0
        self._cost_s = 0.0
        self._worked_s = time.process_time()
        self._running: Future[float] | None = None
        self._notifier = notifier if self._wanted else None
        self._copying: Future[None] | None = None
        self._writer = ThreadPoolExecutor(1, "snapshot") if self._fds else None
        self._stream = torch.cuda.Stream(device) if self._fds and device.type == "cuda" else None
        self._maps: dict[int, Any] = {}

    def due(self, step: int) -> bool:
        """Whether a snapshot of the state after this step is due."""
        return self._wanted and step >= self._next

    def after(self, step: int, step_s: float, facts: Callable[[], dict[str, Any]], then: Callable[[], None]) -> None:
        """Begin a snapshot if one is due. Call it after each step. Collective while `every` is undecided.

        Calls `then`, in any thread, once the snapshot is complete and copied, or has failed.
        """
        if not self._wanted:
            return
        self._seen += 1
        if self._every is None and self._seen <= DECIDE_AT:
            work_s = self._work_of(step_s)
            if self._seen == DECIDE_AT:
                self.settle()
                self._every = _decide(self._needs(step_s, work_s - self._cost_s), self._device)
        if self.due(step):
            self._next = step + (self._every or 1)
            self._begin(step, facts(), then)

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

    def _settle_own(self) -> None:
        """Wait for the running snapshot. A failure is logged, and ends all snapshots."""
        if self._running is None:
            return
        try:
            self._cost_s = self._running.result()
        except OSError as error:
            print(f"no more snapshots: {error}", flush=True)  # noqa: T201  (a trainer's standard output is its log)
            self._fds = []
        finally:
            self._running = None

    def _begin(self, step: int, facts: dict[str, Any], then: Callable[[], None]) -> None:
        self.settle()
        if not self._fds:
            then()
            return
        fd = shared_memory.oldest(self._fds)
        ready = None
        if self._stream is not None:
            ready = torch.cuda.Event()
            ready.record(torch.cuda.current_stream(self._device))
        self._running = self._submit(self._write, fd, step, facts, ready)
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

    def _work_of(self, step_s: float) -> float:
        """On a CPU, seconds of processor time since the last call; else `step_s`."""
        before, self._worked_s = self._worked_s, time.process_time()
        return self._worked_s - before if self._device.type == "cpu" else step_s

    def _needs(self, step_s: float, work_s: float) -> float:
        """Minimum number of steps between two snapshots, by their cost, and by the time that their copies take."""
        cost_s, took_s = (self._notifier.cost_s, self._notifier.took_s) if self._notifier else (0.0, 0.0)
        busy_s = max(min(work_s, step_s), MOST_IDLE * step_s, 1e-9)
        return max((self._cost_s + cost_s) / COST / busy_s, took_s / max(step_s, 1e-9))

    def _write(self, fd: int, step: int, facts: dict[str, Any], ready: Any) -> float:
        """Copy everything and seal; returns the seconds of processor time that it took."""
        began = time.thread_time()
        text = json.dumps(facts | {"pieces": _table(self._shards)}).encode()
        start = aligned(shared_memory.START + len(text))
        size = start + sum(aligned(shard.tensor.nbytes) for shard in self._shards)
        shared_memory.empty(fd)
        shared_memory.reserve(fd, size)
        memory = self._map(fd)
        memory[shared_memory.START : shared_memory.START + len(text)] = text
        self._copy(memory, start, ready)
        shared_memory.seal(fd, shared_memory.Header(step, len(text), size))
        return time.thread_time() - began

    def _map(self, fd: int) -> Any:
        size = os.fstat(fd).st_size
        if fd not in self._maps or len(self._maps[fd]) < size:
            self._maps[fd] = shared_memory.mapped(fd)
            if self._stream is not None:
                _pin(self._maps[fd])
        return self._maps[fd]

    @torch.no_grad()
    def _copy(self, memory: Any, start: int, ready: Any) -> None:
        if self._stream is None:
            for shard, place in _places(self._shards, memory, start):
                place.copy_(shard.tensor)
            return
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(ready)
            for shard, place in _places(self._shards, memory, start):
                place.copy_(shard.tensor, non_blocking=True)
        self._stream.synchronize()


@torch.no_grad()
def restore(fds: Sequence[int], step: int, shards: Sequence[ParamShard]) -> dict[str, Any]:
    """Fill `shards` from the snapshot of `step` and return its facts. Raises `SnapshotError`."""
    for fd in fds:
        header = shared_memory.read_header(fd)
        if header is None or header.step != step:
            continue
        memory = shared_memory.mapped(fd)
        facts: dict[str, Any] = json.loads(memory[shared_memory.START : shared_memory.START + header.facts])
        if facts.pop("pieces") != _table(shards):
            raise SnapshotError(f"the snapshot of step {step} is of another layout or model")
        for shard, place in _places(shards, memory, aligned(shared_memory.START + header.facts)):
            shard.tensor.copy_(place)
        return facts
    raise SnapshotError(f"this rank has no snapshot of step {step}")


def _places(shards: Sequence[ParamShard], memory: Any, start: int) -> list[tuple[ParamShard, torch.Tensor]]:
    """Each shard with the tensor in `memory` that is its copy."""
    found = []
    for shard in shards:
        count = shard.tensor.numel()
        if count:
            flat = torch.frombuffer(memory, dtype=shard.tensor.dtype, count=count, offset=start)
            found.append((shard, flat.view(shard.tensor.shape)))
        start += aligned(shard.tensor.nbytes)
    return found


def _table(shards: Sequence[ParamShard]) -> list[list[Any]]:
    """The table of the shards, in the format that `header.py` reads."""
    return [
        [p.name, list(p.offset), list(p.tensor.shape), str(p.tensor.dtype), list(p.shape), p.tensor.itemsize]
        for p in shards
    ]


def _decide(needed: float, device: torch.device) -> int:
    """Steps between two snapshots: the maximum that any rank needs. Collective."""
    worst = torch.tensor([needed], dtype=torch.float64, device=device)
    dist.all_reduce(worst, dist.ReduceOp.MAX)
    return max(1, math.ceil(worst.item()))


def _pin(memory: Any) -> None:
    """Pin the slot, so that the device copies into it directly. If that fails, copies pass through a buffer of the driver."""
    flat = torch.frombuffer(memory, dtype=torch.uint8)
    torch.cuda.cudart().cudaHostRegister(flat.data_ptr(), flat.numel(), 0)
