"""A probe measures one step: its traffic, its memory and, in a pipeline, its waits. Other steps have no overhead.

Memory per rank in bytes: parameters, gradients (their peak) and optimizer state are counted from the tensors
themselves; activations are what autograd saved or selective recompute kept for the backward pass, their peak, each storage once
and without parameters. On CUDA the allocator's peak is reported too.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from statistics import fmean
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.autograd.graph import saved_tensors_hooks

from ....strategies.activation_memory.selective import watched
from ....strategies.pipeline_parallel.bubble import Bubble
from ....strategies.telemetry.comm_counter import Traffic, axes_of, total
from ....strategies.telemetry.current import wait_on
from ....strategies.telemetry.wait_time import StepTiming
from ...messages.event import ProbeEvent, read
from ...planned_peak import incident_text
from ..build import TrainerParts
from ..device_facts import capability_of
from ..instruments import Instruments
from ..reports import Reporter
from ..step_record import StepRecord, StepStats
from .base import Callback

T = TypeVar("T")


class StepProbe(Callback):
    """Probes the steps that the spec names. The first probe of an attempt reports a peak that is off the memory plan.

    `again`: the attempt has trained before.
    """

    def __init__(self, parts: TrainerParts, reporter: Reporter, instruments: Instruments, again: bool = False) -> None:
        self._parts, self._reporter, self._instruments = parts, reporter, instruments
        self._compared = again
        self._probe: Probe | None = None
        self._counting, self._timing = ExitStack(), ExitStack()

    def before_step(self, step: int) -> None:
        if self._parts.spec.probe.due(step):
            self._probe = Probe(self._parts)
            self._counting.enter_context(self._probe.computing())

    def meets(self, step: int) -> bool:
        """After a probed step, and before one: then each worker pushes once in it."""
        return any(map(self._parts.spec.probe.due, (step, step + 1)))

    def before_forward(self, step: int) -> None:  # noqa: ARG002
        if self._probe:
            self._timing.enter_context(self._probe.running())

    def after_backward(self, step: int) -> None:  # noqa: ARG002
        self._timing.close()

    def after_reduce(self, step: int) -> None:  # noqa: ARG002
        self._counting.close()

    def before_update(self, stats: StepStats) -> None:  # noqa: ARG002
        if self._probe:
            self._counting.enter_context(self._probe.moving())

    def after_update(self, step: int) -> None:  # noqa: ARG002
        if self._probe:
            with self._instruments.phase("publish"):
                self._parts.parallel.data.settle()  # publishing parameters sends in this step
            self._counting.close()

    def after_step(self, record: StepRecord) -> None:
        if self._probe:
            probe, self._probe = self._probe, None
            assert record.stats.timing is not None, "the loop measures every step that is probed"
            event = read(ProbeEvent, {"step": record.step, **probe.record(record.stats.timing)})
            self._reporter.of_job(event)
            self._compare(event)

    def _compare(self, event: ProbeEvent) -> None:
        """Report a peak that is off its plan, once. CPU ranks measure none."""
        if self._compared or "allocated" not in event.memory:
            return
        self._compared = True
        parts = self._parts
        peak = event.memory["allocated"].max
        text = incident_text(parts.spec, parts.architecture, peak, capability_of(parts.mesh.device))
        if text is not None:
            self._reporter.incident("memory_off_plan", text, event.step)

    def close(self) -> None:
        self._timing.pop_all()  # pop without exiting: the exit is collective, and another rank may have failed
        self._counting.close()


class Probe:
    """Measures one step of `parts`: `moving()` around sends, `computing()` around forward and backward."""

    def __init__(self, parts: TrainerParts) -> None:
        self._parts = parts
        self._traffic = Traffic(axes_of(parts.mesh))
        self._saved = SavedStorages(self._values())
        parts.parallel.data.settle()  # messages of the step before that are still on their way do not count
        parts.parallel.data.gradient_peak = 0
        if parts.mesh.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(parts.mesh.device)

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Forward and backward."""
        with self._traffic, watched(self._saved.pack), saved_tensors_hooks(self._saved.pack, self._saved.unpack):
            yield

    def running(self) -> AbstractContextManager[None]:
        """The micro-batches of the step, within `computing`. Times those of a pipeline."""
        return self._parts.parallel.runner.timed()

    @contextmanager
    def moving(self) -> Iterator[None]:
        """Count the traffic within the context."""
        with self._traffic:
            yield

    def record(self, timing: StepTiming) -> dict[str, Any]:
        """`{"traffic": axis → collective → calls, elements, bytes (of this rank), "traffic_sum": the same of all ranks together,
        "memory": kind → min, max over ranks, "busy_s" and "wait_s": by rank, of `timing`}`, and under a pipeline `bubbles`. Collective.
        """
        mine, moved = self._memory(), self._traffic.to_json()
        everyone = _gathered(mine)
        memory = {kind: {"min": min(m[kind] for m in everyone), "max": max(m[kind] for m in everyone)} for kind in mine}
        bubble = self._parts.parallel.runner.bubble()
        bubble_data = {} if bubble is None else bubbles(_gathered(bubble))
        timings = _gathered(timing)
        times = {"busy_s": [each.busy_s for each in timings], "wait_s": [each.wait_s for each in timings]}
        return {"traffic": moved, "traffic_sum": total(_gathered(moved)), "memory": memory, **times, **bubble_data}

    def _memory(self) -> dict[str, int]:
        parts = self._parts
        values = self._values()
        state = [t for entry in parts.optimizer.state.values() for t in entry.values() if isinstance(t, torch.Tensor)]
        kept = [*(shard.tensor for shard in parts.parallel.data.shards), *state]
        masters = _storages(tensor for tensor in kept if not self._is_on_disk(tensor))
        memory = {
            "parameters": sum(values.values()),
            "gradients": parts.parallel.data.gradient_peak,
            "optimizer": sum(size for key, size in masters.items() if key not in values),
            "activations": self._saved.peak,
        }
        if parts.mesh.device.type == "cuda":
            memory["allocated"] = torch.cuda.max_memory_allocated(parts.mesh.device)
        return memory

    def _values(self) -> dict[int, int]:
        """The storages of the parameters in memory, in all versions that are held."""
        parallel = self._parts.parallel
        own = [p for part in parallel.parts for p in part.parameters() if not self._is_on_disk(p)]
        return _storages([*own, *(shard.tensor for shard in parallel.runner.older)])

    def _is_on_disk(self, tensor: torch.Tensor) -> bool:
        file = self._parts.state_file
        return file is not None and file.holds(_local(tensor.detach()))


def bubbles(everyone: Sequence[Bubble]) -> dict[str, Any]:
    """`bubble_measured`: min, mean and max over ranks; `bubble_simulated`: the mean over pipelines, all of them equally long."""
    measured = [bubble.measured for bubble in everyone]
    return {
        "bubble_measured": {"min": min(measured), "mean": fmean(measured), "max": max(measured)},
        "bubble_simulated": fmean(bubble.simulated for bubble in everyone),
    }


def _gathered(mine: T) -> list[T]:
    everyone = [mine] * dist.get_world_size()
    wait_on(lambda: dist.all_gather_object(everyone, mine), "all_gather")
    return everyone


class SavedStorages:
    """Pack and unpack hooks that count the bytes of storage that autograd holds; `known` storages do not count."""

    def __init__(self, known: dict[int, int]) -> None:
        self._known = known
        self._holders: dict[int, int] = {}
        self.now = self.peak = 0

    def pack(self, tensor: torch.Tensor) -> "_Held":
        storage = _local(tensor).untyped_storage()
        key, size = storage.data_ptr(), storage.nbytes()
        if key in self._known:
            return _Held(tensor.detach(), lambda: None)
        self._holders[key] = self._holders.get(key, 0) + 1
        if self._holders[key] == 1:
            self.now += size
            self.peak = max(self.peak, self.now)
        # Without its graph, because an output that its own node saves would keep itself alive.
        return _Held(tensor.detach(), lambda: self._release(key, size))

    def unpack(self, held: "_Held") -> torch.Tensor:
        return held.tensor

    def _release(self, key: int, size: int) -> None:
        self._holders[key] -= 1
        if not self._holders[key]:
            del self._holders[key]
            self.now -= size


class _Held:
    """A saved tensor; autograd drops it with the graph, which calls `released`."""

    def __init__(self, tensor: torch.Tensor, released: Callable[[], None]) -> None:
        self.tensor, self._released = tensor, released

    def __del__(self) -> None:
        self._released()


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """The plain tensor inside of a wrapper (a DTensor, or the result of a collective that is still on its way)."""
    while hasattr(tensor, "__tensor_flatten__"):
        names, _ = tensor.__tensor_flatten__()
        tensor = getattr(tensor, names[0])
    return tensor


def _storages(tensors: Any) -> dict[int, int]:
    """Address → bytes of the storages behind `tensors`, each once."""
    storages = (_local(tensor.detach()).untyped_storage() for tensor in tensors)
    return {storage.data_ptr(): storage.nbytes() for storage in storages}
