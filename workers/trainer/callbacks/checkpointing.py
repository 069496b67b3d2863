"""What a run saves and how it says so: checkpoints while it trains, the last one with patience, and that one's export.

A fault of the storage is told and costs one checkpoint; only the last one's ends the run. All ranks save alike, rank 0 tells.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch.distributed as dist

from ....strategies.param_shard import Piece
from ...checkpoint.async_saver import Saved, Saver
from ...checkpoint.errors import CheckpointError
from ...huggingface.export import export
from ...storage.open_folder import folder_at
from ..build import Built
from ..heartbeat import PULSE

#: How often the last checkpoint is tried; each other one has its next in the place of a second try.
TRIES: Final = 3


class Saving:
    """The saves of one rank's run; `tell` says what is true of the job."""

    def __init__(self, built: Built, pieces: Sequence[Piece], tell: Callable[[str, dict[str, Any]], None]) -> None:
        self._built, self._tell = built, tell
        self._spec, self._last = built.run.train.checkpoint, built.run.train.steps
        self._root = folder_at(built.run.checkpoints)
        self._saver = Saver(self._root, self._spec.keep, pieces, built.mesh)
        self.newest: str | None = None  # complete checkpoint
        self.exported: str | None = None  # the Hugging Face folder
        self._begun = 0  # the step of the newest save

    def after(self, step: int, training: Callable[[], dict[str, Any]]) -> None:
        """Called after each step: tell what has been saved, and begin to save the state where that is due."""
        self._tell_ended()
        if self.due(step) and not self._is_last(step):
            self._begin(step, training(), 1)

    def leave(self, step: int, training: Callable[[], dict[str, Any]]) -> None:
        """The run ends early, after `step`: let the newest checkpoint be of that step."""
        if self._begun != step:
            self._begin(step, training(), TRIES)

    def due(self, step: int) -> bool:
        """Whether the state after `step` is saved."""
        return self._is_last(step) or (self._spec.every is not None and step % self._spec.every == 0)

    def settle(self) -> None:
        """The state is about to change: let the copy come first."""
        self._saver.settle()

    def wait(self) -> None:
        """Until nothing is being written."""
        self._saver.wait()

    def finish(self) -> None:
        """Wait for the save under way, and tell of it."""
        PULSE.beat("checkpoint", self._last)
        self.wait()
        self._tell_ended()

    def conclude(self, training: Callable[[], dict[str, Any]]) -> None:
        """After the last step, also when a repair came between: the last checkpoint, and its export. Raises `CheckpointError`."""
        if self._spec.final:
            self._begin(self._last, training(), TRIES)
        self.finish()
        if self._spec.export:
            self._export()

    def warn(self, cause: str, message: str, step: int | None = None) -> None:
        """Tell what went wrong though training goes on."""
        self._tell("incident", {"cause": cause, "rank": None, "message": message, "step": step})

    @property
    def about(self) -> dict[str, Any]:
        """What a checkpoint says of the model beside its state."""
        built = self._built
        return {
            "layout": str(built.run.train.layout),
            "model": None if built.architecture is None else built.architecture.model_dump(),
            "tokenizer": built.run.train.data.tokenizer,
        }

    def _begin(self, step: int, training: dict[str, Any], tries: int) -> None:
        PULSE.beat("checkpoint", step)
        self._begun = step
        self._saver.save(step, training | self.about, tries)

    def _is_last(self, step: int) -> bool:
        """Whether the checkpoint of this step is the final one."""
        return self._spec.final and step == self._last

    def _tell_ended(self) -> None:
        for saved in self._saver.ended():
            if saved.error is None:
                self._tell_saved(saved)
            elif self._is_last(saved.step):
                raise CheckpointError(
                    f"the final checkpoint could not be saved in {TRIES} tries: {saved.error}; make room or mend the storage, and go on "
                    "from the newest that is complete with resume_from."
                )
            else:
                self.warn("checkpoint_failed", f"{saved.path}: {saved.error}; training goes on.", saved.step)

    def _tell_saved(self, saved: Saved) -> None:
        self.newest = saved.path
        told = {"step": saved.step, "path": self.newest, "bytes": saved.bytes}
        kept = None if saved.kept is None else list(saved.kept)
        self._tell("checkpoint", told | {"seconds": saved.seconds, "held_s": saved.held_s, "kept": kept})

    def _export(self) -> None:
        """Rank 0: the last checkpoint as a Hugging Face folder; what goes wrong costs the folder, not the job."""
        if dist.get_rank() != 0:
            return
        PULSE.beat("export", self._last)
        began = time.monotonic()
        out = self._root / f"export-{self._last:08d}"
        try:
            out.remove_all()  # of an earlier attempt that died right after it
            made = export(folder_at(str(self.newest)), out)
        except (CheckpointError, OSError) as error:
            self.warn("export_failed", f"{error}; `shardyard export` makes it from the checkpoint.", self._last)
            return
        self.exported = str(out)
        told = {"step": self._last, "path": self.exported, "files": made.files, "parameters": made.parameters}
        self._tell("export", told | {"bytes": made.bytes, "seconds": time.monotonic() - began})
