"""Runs one rank's step of any layout on fake tensors and a fake process group, with the code that trains.

The first step also makes what later steps reuse. So three are run: the second gives the peak of each phase, the third shows what is
held at the highest of them. Nothing is computed, and no other rank is needed. Layouts and options that need
values are refused.
"""

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
import torch
import torch.distributed as dist

from ...strategies.layout import Refusal
from ...strategies.mesh import Mesh, make_mesh
from ...strategies.torch_version import require
from ..data.dataset import Pair, Rows, Tokens
from ..data.position import SampleOrder
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
from .fake_streams import DEVICE
from .fake_tensors import FakeStore, FakeTensor, FakeTensorMode
from .memory_meter import Held, Meter
from .report import KINDS, DryRun, Kind, Phase


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


def dry_run(train: TrainSpec, vocab: int, rank: int = 0) -> DryRun:
    """The report of `rank`. `vocab`: the tokenizer's. Raises `Refusal` for a spec that the model or the layout cannot do."""
    _refuse_unsupported(train, vocab)
    require("the fake process group")
    began = time.monotonic()
    run = Run(job="dry-run", train=train, device="cuda", checkpoints="/", cache=Path("/"))
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=train.layout.world_size)
    try:
        mesh = make_mesh(train.layout, DEVICE)
        with FakeTensorMode(allow_non_fake_inputs=True), CollectiveLog(mesh) as log, Meter() as meter:
            _count_lists(meter)
            found = _Rank(run, mesh, vocab, log, meter).report()
    finally:
        dist.destroy_process_group()
    return replace(found, seconds=time.monotonic() - began)


def _refuse_unsupported(train: TrainSpec, vocab: int) -> None:
    """Raise `Refusal` for what needs values that fake tensors do not have."""
    architecture = train.architecture(vocab)
    if train.layout.stages > 1:
        raise Refusal(
            "layout.pipeline", "A dry run does not cover pipelines yet.", "Leave it out to see one stage's share."
        )
    if architecture is not None and architecture.experts is not None:
        raise Refusal("model", "A dry run does not cover mixtures of experts yet.", "Use a dense model.")
    if train.offload.parameters or train.offload.activations or train.precision.compute == "fp8" or train.compile:
        raise Refusal(
            "offload",
            "A dry run covers neither offload of parameters or activations, fp8 nor compile yet.",
            "Leave them out.",
        )


class _Rank:
    """One rank's parts and the loop over them."""

    def __init__(self, run: Run, mesh: Mesh, vocab: int, log: CollectiveLog, meter: Meter) -> None:
        self._log, self._meter = log, meter
        self._parts = compose(run, mesh, _tokens(run.train, vocab), _initial)
        self._state_bytes = meter.device_bytes
        state = TrainState(self._parts)
        self._instruments = MeteredInstruments(meter=meter)
        reporter = Reporter(self._parts, state, lambda _, __: None)
        batches = Batches(self._parts, state.position)
        self._loop = Loop(self._parts, state, batches, Callbacks([]), reporter, self._instruments)
        self._build_peak = meter.peaks["build"]

    def report(self) -> DryRun:
        self._step(1)
        self._step(2)
        phases, at = {"build": self._build_peak, **self._meter.peaks}, self._meter.peak_at
        syncs, collectives, digests = self._meter.host_syncs(), self._log.collectives(), self._log.digests()
        self._step(3, stop_at=at)
        kinds = _by_kind(self._meter.at_stop, _known(self._parts))
        layout = self._parts.spec.layout
        highest = max(phases.values(), key=lambda phase: phase.bytes)
        return DryRun(
            rank=dist.get_rank(),
            world_size=layout.world_size,
            layout=str(layout),
            parameters=self._parts.parameters,
            state_bytes=self._state_bytes,
            peak_bytes=highest.bytes,
            peak_phase=highest.phase,
            host_bytes=self._meter.host_bytes,
            by_kind=kinds,
            phases=tuple(phases.values()),
            host_syncs=syncs,
            collectives=collectives,
            sequence=digests,
        )

    def _step(self, step: int, stop_at: int | None = None) -> None:
        self._meter.begin_step(stop_at)
        self._log.begin_step()
        with self._meter.during("forward and backward"), self._instruments.installed(DEVICE):
            self._loop.train_step(step)


def _tokens(train: TrainSpec, vocab: int) -> Tokens:
    order = SampleOrder("", "", train.data.seq_len, train.data.validation, train.seed)
    empty = np.zeros(0, dtype=np.int64)
    return FakeTokens(order, vocab, train.global_batch, 0.0, empty, empty)


def _initial(name: str, shape: torch.Size, offset: Sequence[int], size: Sequence[int]) -> torch.Tensor:  # noqa: ARG001
    return torch.empty(tuple(size))


def _count_lists(meter: Meter) -> None:
    """One read of a whole tensor, as on a device: torch's fake tensors read number by number."""

    def tolist(tensor: torch.Tensor) -> Any:
        meter.read(tensor)
        ones = np.ones(tuple(tensor.shape))
        return (ones if tensor.dtype.is_floating_point else ones.astype(np.int64)).tolist()

    fake: Any = FakeTensor
    fake.tolist = tolist


def _known(parts: TrainerParts) -> dict[int, Kind]:
    """Storage → what it holds: what a rank keeps between steps."""
    found: dict[int, Kind] = {}
    for part in parts.parallel.parts:
        found |= {_storage(value): "parameters" for value in (*part.parameters(), *part.buffers())}
    for shard in parts.parallel.data.shards:
        found.setdefault(_storage(shard.tensor), "optimizer")  # masters; ZeRO-3's shards are the parameters
    for state in parts.optimizer.state.values():
        found |= {_storage(value): "optimizer" for value in state.values() if isinstance(value, torch.Tensor)}
    return found


def _storage(tensor: torch.Tensor) -> int:
    plain = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    key: int = plain.untyped_storage()._cdata
    return key


def _by_kind(held: Sequence[Held], known: dict[int, Kind]) -> dict[Kind, int]:
    found: Counter[Kind] = Counter()
    for one in held:
        found[known.get(one.key) or _kind(one)] += one.bytes
    return {kind: found[kind] for kind in KINDS if found[kind]}


def _kind(held: Held) -> Kind:
    """What a storage of this step holds, by the line that made it."""
    if held.line.startswith("strategies/loss.py"):
        return "logits"
    if held.line.startswith("strategies/data_parallel/"):
        return "gradients" if held.backward or held.phase != "forward and backward" else "buffers"
    if held.phase == "forward and backward":
        return "gradients" if held.backward else "activations"
    return "buffers"
