"""Assembles one rank's training: the parts, the loop, and the callbacks. Only this file determines their order."""

import socket
from dataclasses import replace
from datetime import timedelta

import torch

from ...strategies.layout import own_clocks
from ...strategies.mesh import make_mesh
from ..messages.rendezvous import RankAssignment
from ..snapshot.replication import SnapshotNotifier
from ..spec import Run, TrainSpec
from .batches import Batches
from .build import TrainerParts, allocate
from .callbacks.base import Callbacks
from .callbacks.checkpointing import Checkpointing
from .callbacks.constant_buffers import ConstantBuffers
from .callbacks.nan_attribution import NanAttribution
from .callbacks.probe import StepProbe
from .callbacks.profiling import Profiling
from .callbacks.replica_check import ReplicaCheck
from .callbacks.snapshotting import Snapshots, Snapshotting
from .callbacks.step_trace import StepTrace
from .determinism import compute_the_same_bits
from .event_outbox import EmitEvent, EventOutbox
from .instruments import Instruments
from .late_sums import LateSums
from .loop import Loop
from .optimizer import optimizer_shards
from .own_clocks import OwnClocks, snapshot_every
from .preflight import preflight
from .process_groups import formed
from .reports import Reporter, log_and_emit
from .restore import NO_SNAPSHOTS, Restore, SavedState, SnapshotMemory
from .snapshot_allocation import Allocation
from .snapshot_shares import SnapshotShares
from .stage_profile import kept
from .train_state import TrainState
from .validation import Validation


def train(run: Run, coords: RankAssignment, emit: EmitEvent, instruments: Instruments) -> None:
    """Train one rank of a gang, from forming its groups to its last event."""
    if run.train.deterministic:
        compute_the_same_bits()
    with formed(coords) as device:
        mesh = make_mesh(run.train.layout, device, timedelta(seconds=coords.timeout_s))
        if run.preflight and coords.generation == 1:
            preflight(mesh, log_and_emit(emit))
        notifier = coords.notifier if coords.copied else None
        allocation = Allocation(coords.holder, dict(coords.replicas))
        memory = SnapshotMemory(coords.segments, coords.restore, notifier, coords.generation > 1, allocation)
        profile = kept(run.train, coords.segments, coords.restore)
        parts = allocate(run, mesh, profile, instruments.heartbeat.starting)
        assemble(parts, log_and_emit(emit), instruments, memory).run()


def train_on(run: Run, device: torch.device, emit: EmitEvent, instruments: Instruments) -> None:
    """Train one rank on the running process group."""
    assemble(allocate(run, make_mesh(run.train.layout, device)), emit, instruments).run()


def assemble(
    parts: TrainerParts, emit: EmitEvent, instruments: Instruments, memory: SnapshotMemory = NO_SNAPSHOTS
) -> Loop:
    """The loop of one rank, ready to run. `emit` gets its events."""
    outbox = EventOutbox(emit)
    state = TrainState(parts)
    reporter = Reporter(parts, state, outbox.emit)
    batches = Batches(parts, state.position, ahead=True)
    of_parameters = parts.parallel.data.shards
    shards = [*of_parameters, *optimizer_shards(of_parameters, parts.optimizer), *parts.parallel.balance.shards]
    shards += parts.parallel.runner.older
    notifier = None if memory.notifier is None else SnapshotNotifier(socket.socket(fileno=memory.notifier))
    shares = SnapshotShares(shards, parts.mesh)
    every, device = snapshot_every(parts.spec), parts.mesh.device
    snapshots = Snapshots(memory.slots, every, shares.kept, device, instruments, notifier)
    saved = SavedState(parts, state, outbox, reporter.is_first)
    checkpointing = Checkpointing(parts, shards, state, saved.for_checkpoint, reporter, instruments)
    allocation = replace(memory.allocation, later=checkpointing.missing)
    callbacks = [
        Restore(saved, memory, shares, snapshots, reporter, instruments.heartbeat.starting),
        # First after a step: no other callback may send anything before the probe's own collectives.
        StepProbe(parts, reporter, instruments, memory.again),
        # Before the trace, whose clocks it would disturb by its start.
        Profiling(instruments.pending_profile, device, emit),
        # Last of those with a hook before a step, so that recording begins with the step's time. Before all that take time
        # after a step, so that the clocks are aligned soon after the steps that they measured.
        StepTrace(parts, emit, instruments),
        # Before clipping, which would spread a NaN, and before the state is saved.
        NanAttribution(parts, batches),
        # Before the state is saved, which would lack them.
        ConstantBuffers(parts),
        # Before the state is saved, so that a saved state has equal replicas.
        ReplicaCheck(parts, shards, checkpointing.due, instruments),
        # Before the state is saved, because it includes the validation loss.
        Validation(parts, batches, reporter, state, instruments),
        # Before the snapshot, because it includes the path of the newest checkpoint.
        checkpointing,
        # Last: when it flushes the buffered events, they include all events of the step.
        Snapshotting(snapshots, saved.for_snapshot, outbox, instruments, allocation, reporter),
    ]
    return _kind(parts.spec)(parts, state, batches, Callbacks(callbacks), reporter, instruments)


def _kind(train: TrainSpec) -> type[Loop]:
    """The loop by what a step of all ranks needs from all of them before it ends."""
    if own_clocks(train.layout):
        return OwnClocks
    return LateSums if train.ends_apart else Loop
