"""Restores a rank from a snapshot in memory, else from a checkpoint, else gives it the values of step 0.

Parameters have no values before. So a rank that restores draws none, and reads no file of a published model.

This file also writes what it reads: `for_checkpoint` and `for_snapshot` give the JSON beside the tensors.
"""

import queue
import sys
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch.distributed as dist

from ...strategies.layout import Refusal, own_clocks
from ...strategies.param_shard import frozen_names
from ..checkpoint import restore as checkpoints
from ..checkpoint.async_saver import Saved
from ..checkpoint.errors import CheckpointAbsent, CheckpointError
from ..checkpoint.manifest import Manifest, read
from ..checkpoint.retention import folder, step_of
from ..device_choices import continues_in
from ..messages.event import sanitize, to_json
from ..models.continued_model import other_numbers, refuse_other_model
from ..snapshot.header import UNFINISHED, segment_of
from ..storage.folder import Folder
from ..storage.open_folder import folder_at
from . import stage_profile
from .build import TrainerParts
from .callbacks import snapshotting
from .callbacks.base import Callback
from .callbacks.checkpointing import about_model, event_of
from .event_outbox import EventOutbox
from .reports import Reporter
from .segment_writer import restore
from .snapshot_allocation import Allocation
from .snapshot_shares import SnapshotShares
from .train_state import Progress, TrainState


@dataclass(frozen=True)
class SnapshotMemory:
    """This rank's snapshots, as its actor keeps them: `slots` and `notifier` are descriptors.

    `restore` is the step of the snapshot that all ranks restore. `again`: the attempt has trained before. `allocation` provides their
    memory.
    """

    slots: Sequence[int] = ()
    restore: int | None = None
    notifier: int | None = None
    again: bool = False
    allocation: Allocation = field(default_factory=Allocation)


#: Seconds for the manifest of a save that was perhaps not reported.
MISSED_S: Final = 5.0
#: Plain torchrun has no actor that would hold snapshots.
NO_SNAPSHOTS: Final = SnapshotMemory()


class SavedState:
    """The state of a checkpoint and a snapshot beside the tensors, with rank 0's events of the last seconds, which may be lost."""

    def __init__(self, parts: TrainerParts, state: TrainState, outbox: EventOutbox, is_first: bool) -> None:
        self.parts, self.state, self.outbox, self.is_first = parts, state, outbox, is_first
        self.attempt = [parts.run.job, parts.run.attempt]

    def for_checkpoint(self, step: int) -> dict[str, Any]:
        """The `training` part of the manifest."""
        loop = self.state.progress.state_dict()
        return self.state.state_dict(step) | {
            "loop": loop,
            "recent_events": sanitize(self._recent()),
            "events_attempt": self.attempt,
        }

    def for_snapshot(self, step: int) -> dict[str, Any]:
        """The snapshot's JSON, with what a checkpoint made of it needs."""
        state = {"training": self.state.state_dict(step), "about": about_model(self.parts)}
        loop, newest = self.state.progress.state_dict(), self.state.newest_checkpoint
        also = {"loop": loop, "checkpoint": newest, "recent_events": self._recent()}
        return state | also | stage_profile.facts(self.parts.profile)

    def _recent(self) -> list[tuple[str, dict[str, Any]]]:
        return self.outbox.recent() if self.is_first else []


class Restore(Callback):
    """Restores one rank's tensors (those of `shares`) and state. All ranks restore the same step.

    `beat` is called while a checkpoint, or a published model, is read.
    """

    def __init__(
        self,
        saved: SavedState,
        memory: SnapshotMemory,
        shares: SnapshotShares,
        snapshots: snapshotting.Snapshots,
        reporter: Reporter,
        beat: Callable[[], None],
    ) -> None:
        self._saved, self._memory, self._shares = saved, memory, shares
        self._snapshots, self._reporter, self._beat = snapshots, reporter, beat
        self._state = saved.state

    def start(self) -> None:
        """Set the state to the step after which the training continues, 0 for the start. Raises `CheckpointError` if no step is left."""
        if self._memory.restore is not None:
            self._from_snapshot(self._memory.restore)
        else:
            self._from_checkpoint()
        step, steps = self._state.step, self._saved.parts.spec.steps
        self._state.progress.began_at = self._state.progress.began_at or step + 1
        if step >= steps and not self._has_trained:
            raise CheckpointError(
                f"the checkpoint is of step {step}: train.steps {steps} leaves nothing to do; raise it."
            )

    @property
    def _has_trained(self) -> bool:
        """Whether this job continues its own training: then it may have no step left but still its end to do."""
        again = self._memory.again or self._memory.restore is not None or self._saved.parts.run.attempt > 1
        return self._state.is_own and again

    def _from_snapshot(self, step: int) -> None:
        """The snapshot that the gang has chosen."""
        facts = self._facts(step)
        self._shares.complete()
        self._state.unfinished = bool(facts.get(UNFINISHED))
        self._state.progress = Progress.from_state_dict(facts["loop"])
        self._state.newest_checkpoint = facts["checkpoint"]
        self._saved.outbox.replay(facts["recent_events"])
        self._snapshots.copy(step)
        self._state.locate(facts["training"], own=True)
        self._state.load_state_dict(facts["training"])
        run = self._saved.parts.run
        every = run.train.checkpoint.every
        due = 0 if every is None else step // every * every
        if due > 0:
            owed = [self._saved.is_first and self._report_missed(due)]
            if not own_clocks(run.train.layout):  # where ranks may be absent, and nothing ends a wait for them
                dist.broadcast_object_list(owed, src=0)
                self._state.owes_checkpoint = owed[0]

    def _report_missed(self, due: int) -> bool:
        """Report the save that was due before the restored step, if it is complete and was not reported before a rank died.

        Returns whether it is not there: its writers died with the ranks. Storage that cannot be read now, or does not answer within
        `MISSED_S`, is no reason for a repair to fail: the next restore from a checkpoint reports it.
        """
        known = self._state.newest_checkpoint
        try:
            if known is not None and step_of(folder_at(known)) >= due:
                return False
            path = folder(folder_at(self._saved.parts.run.checkpoints), due)
            manifest = _read_within(MISSED_S, path)
        except CheckpointAbsent:
            return True
        except (OSError, CheckpointError, queue.Empty):
            return False
        if manifest.training.get("events_attempt") == self._saved.attempt:
            self._report(path, manifest)
        return False

    def _report(self, path: Folder, manifest: Manifest) -> None:
        """Report a checkpoint that is complete, as its save may have ended right before a rank died. What is known is dropped later."""
        self._state.newest_checkpoint = str(path)
        if self._saved.is_first:
            saved = Saved(manifest.step, str(path), manifest.bytes, 0.0, 0.0, error=None, digest=manifest.sha256)
            event = event_of(saved)
            self._saved.outbox.replay([(event.kind, to_json(event))])

    def _facts(self, step: int) -> dict[str, Any]:
        """Fill the shards; returns the JSON beside them.

        Where workers have clocks of their own, one that was gone has no snapshot of the step, and no shards. Then it has that of rank 0
        without its events. Collective there.
        """
        if not own_clocks(self._saved.parts.spec.layout):
            return restore(self._memory.slots, step, self._shares.kept)
        returns = not self._shares.kept and segment_of(self._memory.slots, step) is None
        own = None if returns else restore(self._memory.slots, step, self._shares.kept)
        shared = [own]
        dist.broadcast_object_list(shared, src=0)
        first = shared[0]
        assert first is not None, "rank 0 always has a snapshot of the step"
        mine = {**first, "recent_events": []} if own is None else own
        return {**mine, UNFINISHED: first.get(UNFINISHED)}  # as on all ranks

    def _from_checkpoint(self) -> None:
        """The job's own newest valid checkpoint, or the one to resume from."""
        run, state = self._saved.parts.run, self._state
        resume = None if run.resume is None else folder_at(run.resume)
        own, warn = folder_at(run.checkpoints), self._reporter.incident
        found = checkpoints.restore(own, resume, self._shares.shards, warn, self._accept, self._beat)
        if found is None:
            first_values = self._saved.parts.first_values
            if first_values is not None:
                first_values.set(self._saved.parts.parallel.data, self._beat)
            return
        training = found.manifest.training
        state.unfinished = state.is_own and bool(training.get(UNFINISHED))
        same_attempt = training.get("events_attempt") == self._saved.attempt
        if state.is_own and (same_attempt or training["step"] == run.train.steps):
            state.progress = Progress.from_state_dict(training.get("loop", {}))
        if self._saved.is_first and self._memory.again and same_attempt:
            self._saved.outbox.replay(training["recent_events"])
        state.load_state_dict(training)
        if state.is_own:
            self._report(found.path, found.manifest)
        if self._saved.is_first:
            say_precision(training.get("precision"), self._saved.parts.spec.precision.compute)
            if said := other_numbers(training.get("model"), self._saved.parts.architecture):
                sys.stderr.write(f"{said}\n")

    def _accept(self, manifest: Manifest, own: bool) -> None:
        """Raises `Refusal` if a checkpoint is of another model or other data."""
        self._state.locate(manifest.training, own)  # first: another tokenizer is why a vocabulary has another size
        refuse_other_model(manifest.training.get("model"), self._saved.parts.architecture)
        refuse_frozen(frozen_names(self._saved.parts.parallel.parts), manifest.tensors)


def refuse_frozen(frozen: Collection[str], saved: Collection[str]) -> None:
    """Raise `Refusal` if any of the `frozen` weights is among the tensors that a checkpoint has `saved`: it was trained there.

    It cannot be read: the checkpoints of this job would not have it, and the factory makes it at every start.
    """
    lost = sorted(name for name in frozen if name in saved)
    if lost:
        more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        raise Refusal(
            "model.import",
            f"{lost[0]}{more}, frozen here, was trained in the checkpoint: its value would be lost, as the factory makes it at each start.",
            "Train it here too, or leave resume_from out. If the factory loads its value, let the parameter have another name.",
        )


def _read_within(seconds: float, path: Folder) -> Manifest:
    """A checkpoint's manifest. Raises as `read`, and queue.Empty after this time: no call ends that waits for a mount without an answer."""
    answers: queue.SimpleQueue[Manifest | Exception] = queue.SimpleQueue()

    def look() -> None:
        try:
            answers.put(read(path))
        except (OSError, CheckpointError) as error:
            answers.put(error)

    threading.Thread(target=look, name="missed checkpoint", daemon=True).start()
    answer = answers.get(timeout=seconds)
    if isinstance(answer, Exception):
        raise answer
    return answer


def say_precision(before: str | None, now: str) -> None:
    """Write to the log that the checkpoint was computed in another dtype. Values and optimizer state do not depend on it."""
    if before not in (None, now):
        sys.stderr.write(f"{continues_in(str(before), now)}\n")
