"""Runs one rank's step of any layout on fake tensors and a fake process group, with the code that trains.

The first step also makes what later steps reuse, so two are run and the second is read. Nothing is computed, and no other rank is
needed. Options that need values are refused.
"""

import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, cast, get_args

import numpy as np
import torch
import torch.distributed as dist

from ...strategies.cost.in_flight import round_length
from ...strategies.cost.stage_balance import stage_blocks
from ...strategies.layout import profiled
from ...strategies.mesh import Mesh, make_mesh
from ...strategies.precision import PRECISIONS
from ...strategies.torch_version import require
from ..data.dataset import Pair, Rows, Tokens
from ..data.position import SampleOrder
from ..device_choices import Choices, DeviceFacts, choices, uncompiled
from ..models.flops import module_flops
from ..models.presets import Architecture
from ..parent_death import die_with_parent
from ..spec import Run, TrainSpec
from ..trainer.batches import Batches
from ..trainer.build import TrainerParts, compose
from ..trainer.callbacks.base import Callbacks
from ..trainer.instruments import Instruments
from ..trainer.instruments import Phase as LoopPhase
from ..trainer.loop import Loop
from ..trainer.reports import Reporter
from ..trainer.train_state import TrainState
from .collective_log import CollectiveLog
from .combined import Measured, combined
from .even_routing import EvenRouting
from .extrapolation import Grid, Size
from .fake_streams import DEVICE
from .fake_tensors import DeviceAnswers, FakeStore, FakeTensorMode, constants_forgotten
from .memory_meter import Meter
from .race_detector import RaceDetector
from .report import DryRun, Kind, Phase
from .unsupported import unsupported

_UNCOMPILED: Final = (
    "compile is auto: the dry run does not compile blocks. Compiled ones need about as much memory, or less."
)
_BY_FLOPS: Final = "layout.pipeline is split by a profile: the dry run has none, and its stages are those of FLOPs."
#: The first step also makes what later ones reuse.
_STEPS: Final = 2
#: A backward pass requests one block ahead, whatever `overlap.prefetch`: fewer blocks are no measure of more.
_LEAST_PREFETCH: Final = 2


class FakeTokens(Tokens):
    """A corpus of zeros without a file."""

    def batch(self, first: int, rows: Rows) -> Pair:  # noqa: ARG002
        return self._zeros(rows)

    def validation(self, batch_index: int, rows: Rows) -> Pair:  # noqa: ARG002
        return self._zeros(rows)

    def _zeros(self, rows: Rows) -> Pair:
        shape = (len(cast(Sequence[int], rows)), self.seq_len)
        return torch.zeros(shape, dtype=torch.int64), torch.zeros(shape, dtype=torch.int64)


@dataclass(frozen=True)
class MeteredInstruments(Instruments):
    """Passes the phases of the loop to the meter."""

    meter: Meter = field(default_factory=Meter)

    def phase(self, name: LoopPhase, step: int | None = None) -> AbstractContextManager[None]:  # noqa: ARG002
        assert name in get_args(Phase), name
        return self.meter.during(cast(Phase, name))


def dry_run(
    train: TrainSpec, vocab: int, rank: int = 0, whole: bool = False, at_once: int = 1, races: bool = False
) -> DryRun:
    """The report of `rank`. `vocab`: the tokenizer's; `at_once`: in how many processes to measure.

    `races`: raises `Race` where two streams, or a stream and the host, use the same memory and nothing orders them.

    A model of many blocks is run with a few per stage, and a step of many micro-batches with a few, and the numbers are extrapolated;
    not so if `whole`. Raises `Refusal` for a spec that the model or the layout cannot do.
    """
    if (refusal := unsupported(train)) is not None:
        raise refusal
    require("the fake process group")
    began = time.monotonic()
    chosen = _decided(train, vocab)
    train, layout = chosen.train, train.layout
    grid = grid_of(train, vocab, rank // (layout.world_size // layout.pipeline), whole)
    measure = partial(_measure, train, vocab, rank, races)
    if at_once == 1 or grid.whole:
        runs = [measure(size) for size in grid.sizes]
    else:
        with ProcessPoolExecutor(
            at_once, multiprocessing.get_context("fork"), initializer=die_with_parent, initargs=(os.getpid(),)
        ) as pool:
            runs = list(pool.map(measure, grid.sizes))
    found = combined(train, vocab, rank, grid, dict(zip(grid.sizes, runs, strict=True)))
    return replace(found, choices=chosen.reasons, seconds=time.monotonic() - began)


def _decided(train: TrainSpec, vocab: int) -> Choices:
    """The spec on the fake GPU, with blocks that are not compiled."""
    found = choices(uncompiled(train), train.facts(vocab), DeviceFacts("cuda", torch.cuda.get_device_capability()))
    more = {_UNCOMPILED: train.compile is not False, _BY_FLOPS: profiled(train.layout)}
    return Choices(found.train, (*found.reasons, *(reason for reason, holds in more.items() if holds)))


def grid_of(train: TrainSpec, vocab: int, place: int, whole: bool) -> Grid:
    """What to run for the rank at `place` of its pipeline."""
    batch, architecture, layout = train.check(vocab), train.architecture(vocab), train.layout
    microbatches: tuple[int, ...] = (batch.microbatches,)
    # Rounds as long as the step's: their length decides how much a stage holds.
    in_turn = layout.stages_per_rank * round_length(layout, batch.microbatches)
    if batch.microbatches > 3 * in_turn and not whole:
        microbatches = (2 * in_turn, 3 * in_turn)
    if architecture is None:
        return Grid((None,), microbatches, (0, batch.microbatches))
    stages = stage_blocks(layout, module_flops(architecture, train.data.seq_len))
    mine = [len(stages[stage]) for stage in layout.stages_of(place)]
    depth = sum(mine) / len(mine)
    # Enough blocks that none is prefetched too early or too late, and that one is neither first, second nor last.
    least = max(train.overlap.prefetch, _LEAST_PREFETCH) + 1
    every = 1 if train.recompute.mode == "none" else train.recompute.every
    least += (mine[0] - least) % every  # after the last recomputed block come as many as in the rank's stages
    alike = every == 1 or len(set(mine)) == 1
    if (
        whole
        or not alike
        or train.offload.activations
        or depth <= least + every
        or _shares_buckets(train, architecture)
    ):
        return Grid((None,), microbatches, (depth, batch.microbatches))
    return Grid((least, least + every), microbatches, (depth, batch.microbatches))


def _shares_buckets(train: TrainSpec, architecture: Architecture) -> bool:
    """Whether gradients of several blocks share a bucket: then memory does not grow evenly with the blocks."""
    deeper = architecture.model_copy(update={"layers": architecture.layers + 1})
    numbers = (deeper.parameters - architecture.parameters) * train.layout.division.copies // train.layout.tensor
    element_bytes = PRECISIONS[train.precision.compute].compute.itemsize
    return train.layout.zero < 3 and numbers * element_bytes < 2 * train.overlap.bucket_bytes


def _measure(train: TrainSpec, vocab: int, rank: int, races: bool, size: Size) -> Measured:
    """One run, with a process group of its own."""
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=train.layout.world_size)
    try:
        mesh = make_mesh(train.layout, DEVICE)
        with FakeTensorMode(allow_non_fake_inputs=True) as mode, constants_forgotten(mode):
            return _Rank(train, vocab, mesh, size, RaceDetector() if races else None).measured()
    finally:
        dist.destroy_process_group()


class _Rank:
    """One rank's parts and the loop over them, at one size."""

    def __init__(
        self, train: TrainSpec, vocab: int, mesh: Mesh, size: Size, detector: RaceDetector | None = None
    ) -> None:
        blocks, microbatches = size
        batch = train.check(vocab)
        layout = train.layout.model_copy(update={"micro_batch": batch.micro_batch})
        sequences = batch.data * microbatches * batch.micro_batch
        fewer = {"layout": layout, "global_batch": sequences, "steps": max(_STEPS, train.steps)}
        run = Run(job="dry-run", train=train.model_copy(update=fewer), device="cuda", checkpoints="/", cache=Path("/"))
        self._log, self._meter, self._detector = CollectiveLog(mesh), Meter(), detector
        with self._metered():
            self._parts = compose(run, mesh, _tokens(run.train, vocab), blocks)
        state = TrainState(self._parts)
        self._instruments = MeteredInstruments(meter=self._meter)
        reporter = Reporter(self._parts, state, lambda _, __: None)
        self._batches = Batches(self._parts, state.position)
        self._loop = Loop(self._parts, state, self._batches, Callbacks([]), reporter, self._instruments)

    def measured(self) -> Measured:
        state_bytes, built = self._meter.device_bytes, self._meter.sites
        for step in range(1, _STEPS + 1):
            self._step(step)
        syncs, digests = self._meter.syncs.copy(), self._log.digests()
        self._meter.syncs.clear()
        sent = {
            (axis, kind): (moved.calls, moved.bytes)
            for axis, kinds in self._log.moved.items()
            for kind, moved in kinds.items()
        }
        with self._metered(), self._meter.during("validation"), torch.no_grad():
            self._parts.parallel.runner.validate(*self._batches.validation(0))
        return Measured(
            parameters=self._parts.parameters,
            state_bytes=state_bytes,
            host_bytes=self._meter.host_bytes,
            sites={**built, **self._meter.sites},
            syncs=syncs,
            validation_syncs=self._meter.syncs,
            sent=sent,
            messages=tuple(self._log.messages),
            meetings=self._log.meetings,
            digests=digests,
        )

    def _step(self, step: int) -> None:
        self._meter.begin_step(_known(self._parts))
        self._log.begin_step()
        with self._metered(), self._meter.during("forward and backward"), self._instruments.installed(DEVICE):
            self._loop.train_step(step)

    @contextmanager
    def _metered(self) -> Iterator[None]:
        watching = self._detector.watching() if self._detector else nullcontext()
        with self._log.logging(), self._meter.metering(), watching, EvenRouting(), DeviceAnswers():
            yield


def _tokens(train: TrainSpec, vocab: int) -> Tokens:
    order = SampleOrder("", "", train.data.seq_len, train.data.validation, train.seed)
    empty = np.zeros(0, dtype=np.int64)
    return FakeTokens(order, vocab, train.global_batch, 0.0, empty, empty, 0 if train.data.is_packed else None)


def _known(parts: TrainerParts) -> dict[int, Kind]:
    """Storage → what it holds: what a rank keeps between steps."""
    found: dict[int, Kind] = {}
    for part in parts.parallel.parts:
        found |= {_storage(value): "parameters" for value in (*part.parameters(), *part.buffers())}
    for shard in parts.parallel.data.shards:
        found.setdefault(_storage(shard.tensor), "optimizer")  # masters; ZeRO-3's shards are the parameters
        if shard.on_device is not None:
            found.setdefault(_storage(shard.on_device.value), "optimizer")
    for state in parts.optimizer.state.values():
        found |= {_storage(value): "optimizer" for value in state.values() if isinstance(value, torch.Tensor)}
    return found


def _storage(tensor: torch.Tensor) -> int:
    plain = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    key: int = plain.untyped_storage()._cdata
    return key
