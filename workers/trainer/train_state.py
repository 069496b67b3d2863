"""A rank's training state beside its tensors. Checkpoints and snapshots hold both parts of it as JSON."""

import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ..data.position import Position
from .build import TrainerParts
from .optimizer import set_updates_done, updates_done


@dataclass
class Progress:
    """What the summary reports of the steps so far. The field names are keys of the checkpoint's manifest."""

    began_at: int | None = None  # the first step of this attempt
    first_loss: float | None = None
    last_losses: list[float] = field(default_factory=list)  # of the steps whose mean is the final loss
    validation_loss: float | None = None
    trained_s: float = 0.0
    first_step_s: float | None = None

    def state_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> "Progress":
        """Raises TypeError for unknown fields."""
        return cls(**state)


class TrainState:
    """The newest step, the position in the data, and through `parts` the optimizer's and the loss scale's counts."""

    def __init__(self, parts: TrainerParts) -> None:
        self._parts = parts
        self.step = 0  # the newest completed one
        self.position = Position(parts.tokens.order, parts.spec.global_batch)
        self.progress = Progress()
        self.newest_checkpoint: str | None = None  # complete
        self.owes_checkpoint = False  # whether a scheduled save was cut off by a repair; the same on all ranks
        self.exported: str | None = None  # the Hugging Face folder
        self.is_own = False  # whether the restored state is one of this job
        self.unfinished = False  # whether what follows the restored step is still to be done
        self._started = time.monotonic()

    def state_dict(self, step: int) -> dict[str, Any]:
        """The state of optimizer, loss scale and position after `step`, without tensors."""
        scale = self._parts.loss.scale
        return {
            "step": step,
            "updates": updates_done(self._parts.optimizer),
            "loss_scale": None if scale is None else scale.state(),
            "precision": self._parts.spec.precision.compute,
            "data": self.position.state(step),
        }

    def locate(self, state: Mapping[str, Any], own: bool) -> None:
        """Find the next samples. Raises `Refusal` if `state`, of this job or another one, belongs to other data."""
        self.is_own = own
        restart = self._parts.spec.resume_data == "restart" and not own
        self.position.restore(state["step"], state["data"], restart)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue after the step of `state`. Call it after the tensors have their values and `locate` has found the samples."""
        self._parts.parallel.data.publish()
        set_updates_done(self._parts.optimizer, state["updates"])
        scale = self._parts.loss.scale
        if scale is not None and state["loss_scale"]:
            scale.restore(state["loss_scale"])
        self.step = int(state["step"])

    def advance(self, step: int, loss: float | None, seconds: float) -> None:
        """Record that `step` is completed. `loss`: None where this rank does not know that of all ranks.

        One that is not finite is of a step that was skipped, since any other ends the run. It is no part of the first and the final loss.
        """
        progress = self.progress
        self.step = step
        progress.trained_s += seconds
        if loss is None:
            return
        if progress.first_step_s is None:
            progress.first_step_s = time.monotonic() - self._started
        if not math.isfinite(loss):
            return
        if progress.first_loss is None:
            progress.first_loss = loss
        progress.last_losses = [*progress.last_losses, loss][-averaged_steps(self._parts.spec.steps) :]


def averaged_steps(steps: int) -> int:
    """How many of the last steps make up the final loss of a run of `steps`: a tenth, from 1 to 20. One batch's loss varies."""
    return max(1, min(20, steps // 10))
