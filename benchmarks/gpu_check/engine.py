"""Shardyard's own training of one model, step by step: the loop with all its callbacks, as `assemble.py` builds it."""

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import torch

from shardyard.strategies.mesh import make_mesh
from shardyard.workers.trainer.assemble import assemble
from shardyard.workers.trainer.build import allocate
from shardyard.workers.trainer.instruments import Instruments
from shardyard.workers.trainer.restore import NO_SNAPSHOTS, SnapshotMemory
from shardyard.workers.trainer.step_record import StepRecord

from .checks import Place

#: Seconds per step of a block of steps.
Block = Callable[[int], float]


class Engine:
    """A context: within it, `block` trains. `events` are what the loop reported, `records` its steps."""

    def __init__(
        self,
        at: Place,
        spec: Mapping[str, Any],
        memory: SnapshotMemory = NO_SNAPSHOTS,
        instruments: Instruments | None = None,
        job: str = "gpu-check",
    ) -> None:
        """`job` names its folder of checkpoints, from which it would resume. Raises `Refusal` for what cannot run here."""
        run = at.run(spec, job)
        self.at, self.instruments = at, instruments or Instruments()
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.records: list[StepRecord] = []
        self.parts = allocate(run, make_mesh(run.train.layout, at.device))
        self.loop = assemble(self.parts, self._emit, self.instruments, memory)
        self._open = ExitStack()
        self._step = 0

    def _emit(self, kind: str, data: dict[str, Any]) -> None:
        self.events.append((kind, data))

    def __enter__(self) -> Self:
        self._open.enter_context(self.instruments.installed(self.at.device))
        self._open.callback(self.loop.callbacks.close)
        self._open.callback(self.loop.batches.close)
        self.loop.callbacks.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()
        del self.loop, self.parts
        self.records.clear()
        gc.collect()
        if self.at.cuda:
            torch.cuda.empty_cache()

    def step(self) -> StepRecord:
        """One step, with all that comes before and after it."""
        self._step += 1
        self.loop.callbacks.before_step(self._step)
        record = self.loop.train_step(self._step)
        self.loop.callbacks.after_step(record)
        self.records.append(record)
        return record

    def block(self, steps: int) -> float:
        return timed(self.at, self.step, steps)

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """The data of the events of one kind."""
        return [data for name, data in self.events if name == kind]


def timed(at: Place, step: Callable[[], Any], steps: int) -> float:
    """Seconds per step; the device has done all of them."""
    at.synchronize()
    began = time.perf_counter()
    for _ in range(steps):
        step()
    at.synchronize()
    return (time.perf_counter() - began) / steps


def interleaved(
    at: Place, first: Block, second: Block, steps: Callable[[], int] | None = None
) -> list[tuple[float, float]]:
    """Seconds per step of both, in pairs of neighbouring blocks, after some steps that do not count.

    `steps`: the length of a block, asked after those; by default that of the sizes.
    """
    first(at.sizes.warm)
    second(at.sizes.warm)
    length = at.sizes.steps if steps is None else steps()
    return [(first(length), second(length)) for _ in range(at.sizes.turns)]


def ratios(pairs: Sequence[tuple[float, float]]) -> list[float]:
    return [one / other for one, other in pairs]
