"""Saves checkpoints while a run trains, the last one with several tries, and exports that one.

An error of the storage is reported, and that checkpoint is missing. Only an error at the last one ends the run. All ranks save, rank 0
reports. The checkpoint for which a run stops early is tried for minutes: without it, all steps since the one before are lost.
"""

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch.distributed as dist

from ....strategies.layout import own_clocks
from ....strategies.param_shard import ParamShard
from ...checkpoint.async_saver import Saved, Saver
from ...checkpoint.errors import CheckpointError
from ...checkpoint.verify import verify_together
from ...huggingface.export import CONFIG, export
from ...messages.event import CheckpointEvent, ExportEvent
from ...messages.stop_request import StopRequest
from ...storage.open_folder import folder_at
from ..build import TrainerParts
from ..instruments import Instruments
from ..reports import Reporter
from ..step_record import StepRecord, StepStats
from ..train_state import TrainState
from .base import Callback

#: Seconds before each further try of the last checkpoint. A scheduled one has one try, because the next checkpoint follows.
LAST_BACKOFF_S: Final = (1.0, 2.0)
#: The same for the checkpoint for which a run stops. Tries at storage that does not answer take 45 s each: in all less than the 600 s
#: after which the dispatcher kills the gang at the earliest (`reshard_s`), and after which a rank without progress counts as hung.
STOP_BACKOFF_S: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 60.0)


class Checkpointing(Callback):
    """The checkpoints of one rank's run. `training(step)` returns the state beside `shards`."""

    def __init__(
        self,
        parts: TrainerParts,
        shards: Sequence[ParamShard],
        state: TrainState,
        training: Callable[[int], dict[str, Any]],
        reporter: Reporter,
        instruments: Instruments,
    ) -> None:
        self._state, self._training, self._reporter = state, training, reporter
        self._phase, self._heartbeat = instruments.phase, instruments.heartbeat
        self._spec, self._last = parts.spec.checkpoint, parts.spec.steps
        self._about = about_model(parts)
        self._root = folder_at(parts.run.checkpoints)
        self._own_clocks = own_clocks(parts.spec.layout)
        self._saver = Saver(self._root, self._spec.keep, shards, parts.mesh, parts.state_file)

    def before_serving(self, step: int) -> None:  # noqa: ARG002
        self._settle()

    def before_update(self, stats: StepStats) -> None:  # noqa: ARG002
        self._settle()

    def meets(self, step: int) -> bool:
        return self.due(step)

    def after_step(self, record: StepRecord) -> None:
        """Report which saves have ended, and begin one if it is due, unless `finish` saves this step."""
        self._report_ended()
        step = record.step
        finishes = self._is_last(step) or (record.stats.stop == StopRequest.SAVE and step < self._last)
        if self.due(step) and not finishes:
            self._begin(step, ())

    def finish(self, step: int, stop: StopRequest) -> None:
        """Save the last checkpoint and export it. Raises `CheckpointError`.

        A run that stops early saves the state of `step` only if that was requested, and exports nothing.
        """
        if stop == StopRequest.SAVE:
            self._begin(step, STOP_BACKOFF_S)
        elif not stop and self._spec.final:
            self._begin(step, LAST_BACKOFF_S)
        with self._phase("checkpoint", step):
            self._saver.wait(lambda: self._heartbeat.update("checkpoint", step))
            self._report_ended(stopped_at=step if stop == StopRequest.SAVE else None)
        if not stop and self._spec.export:
            with self._phase("export", self._last):
                self._export()

    def due(self, step: int) -> bool:
        """Whether the state after `step` is saved. What a repair has cut off is saved after the first step that follows it."""
        scheduled = self._spec.every is not None and step % self._spec.every == 0
        return self._is_last(step) or scheduled or self._state.owes_checkpoint

    def missing(self) -> int:
        """Bytes of host memory that the first save will take."""
        return self._saver.missing

    def wait(self) -> None:
        """Wait until no save is being written."""
        self._saver.wait()

    def _settle(self) -> None:
        """Wait until the state is copied, before it changes."""
        with self._phase("checkpoint"):
            self._saver.settle()

    def _begin(self, step: int, backoff_s: Sequence[float]) -> None:
        training = self._training(step)
        self._state.owes_checkpoint = False
        with self._phase("checkpoint", step):
            self._saver.save(
                step, training | self._about, backoff_s, lambda: self._heartbeat.update("checkpoint", step)
            )

    def _is_last(self, step: int) -> bool:
        """Whether the checkpoint of this step is the final one."""
        return self._spec.final and step == self._last

    def _report_ended(self, stopped_at: int | None = None) -> None:
        """`stopped_at`: the step for whose checkpoint the run stops."""
        for saved in self._saver.ended():
            if saved.error is None:
                self._report_saved(saved)
            elif self._is_last(saved.step):
                raise CheckpointError(
                    f"the final checkpoint could not be saved in {1 + len(LAST_BACKOFF_S)} tries: {saved.error}; make room or repair "
                    "the storage, and continue from the newest complete checkpoint with resume_from."
                )
            else:
                lost = f"the job stops without it after {1 + len(STOP_BACKOFF_S)} tries, and loses the steps since its newest checkpoint."
                what = lost if saved.step == stopped_at else "training continues."
                self._reporter.incident("checkpoint_failed", f"{saved.path}: {saved.error}; {what}", saved.step)

    def _report_saved(self, saved: Saved) -> None:
        self._state.newest_checkpoint = saved.path
        self._reporter.of_job(event_of(saved))

    def _export(self) -> None:
        """Export the last checkpoint as a Hugging Face folder, on rank 0, once all ranks have verified it. Collective.

        Where workers have clocks of their own, rank 0 verifies it alone: others may be gone. A failure is reported, and does not end the
        job.
        """
        began, source = time.monotonic(), folder_at(str(self._state.newest_checkpoint))
        out = self._root / f"export-{self._last:08d}"
        try:
            verified = None if self._own_clocks else verify_together(source, self._beat_of_export)
        except (CheckpointError, OSError) as error:  # on all ranks
            self._report_no_export(error)
            return
        if dist.get_rank() != 0:
            return
        try:
            out.discard(CONFIG, complete=True)  # of an earlier attempt that died within its export or right after it
            made = export(source, out, beat=self._beat_of_export, verified=verified)
        except (CheckpointError, OSError, RuntimeError) as error:  # RuntimeError: no memory for a file's tensors
            self._report_no_export(error)
            return
        self._state.exported = str(out)
        if made.tokenizer_missing is not None:
            sys.stderr.write(f"shardyard: {made.tokenizer_missing}\n")
            sys.stderr.flush()
        event = ExportEvent(
            step=self._last,
            path=str(out),
            files=made.files,
            parameters=made.parameters,
            bytes=made.bytes,
            seconds=time.monotonic() - began,
        )
        self._reporter.of_job(event)

    def _beat_of_export(self) -> None:
        self._heartbeat.update("export", self._last)

    def _report_no_export(self, error: Exception) -> None:
        again = "`shardyard export` exports the checkpoint again."
        self._reporter.incident("export_failed", f"{error}; {again}", self._last)


def event_of(saved: Saved) -> CheckpointEvent:
    """The report of a checkpoint that is complete."""
    return CheckpointEvent(
        step=saved.step,
        path=saved.path,
        bytes=saved.bytes,
        seconds=saved.seconds,
        held_s=saved.held_s,
        kept=None if saved.kept is None else tuple(saved.kept),
        digest=saved.digest,
    )


def about_model(parts: TrainerParts) -> dict[str, Any]:
    """The facts about the model in a checkpoint, beside its state."""
    return {
        "layout": str(parts.spec.layout),
        "model": None if parts.architecture is None else parts.architecture.model_dump(),
        "tokenizer": parts.spec.data.tokenizer,
        "documents": parts.spec.data.documents,
    }
