"""Whether a step's loss is a spike: far above those of the steps before. Decisions only; training continues.

A loss is far above when it exceeds the median of the last `window` losses by `deviations` standard deviations, as the median absolute
deviation estimates them (× 1.4826), and by a twentieth of the median, which noise of an almost flat curve does not.
Losses of a spike are kept out of the window, so that one spike is one incident: it has ended after CALM steps in a row that are not
far above. One that lasts a whole window is no spike but a new level, with which a new window begins.
"""

import statistics
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final, Self

from ...messages.gang_spec import LossSpikeLimits
from .failures import Failure

DEVIATION: Final = 1.4826
LEAST: Final = 0.05
#: With fewer losses than this nothing is far above.
ENOUGH: Final = 32
CALM: Final = 10


@dataclass(frozen=True)
class LossSpikeState:
    """The last losses, the length of the present spike, and its last steps in a row that were not high."""

    losses: list[float] = field(default_factory=list)
    lasts: int = 0
    calm: int = 0


class Spikes:
    """Examines every step's record, in order. `limits` None: none."""

    def __init__(self, limits: LossSpikeLimits | None) -> None:
        self._limits = limits
        self._losses: deque[float] = deque(maxlen=limits.window if limits else 0)
        self._lasts = self._calm = 0  # steps of the spike so far; those in a row that were not far above

    def to_state(self) -> LossSpikeState:
        return LossSpikeState(list(self._losses), self._lasts, self._calm)

    @classmethod
    def from_state(cls, limits: LossSpikeLimits | None, state: LossSpikeState) -> Self:
        spikes = cls(limits)
        spikes._losses.extend(state.losses)
        spikes._lasts, spikes._calm = state.lasts, state.calm
        return spikes

    def add(self, record: dict[str, Any]) -> Failure | None:
        """The incident of a spike that begins with this step; None when none does."""
        loss = record.get("loss")
        if self._limits is None or loss is None or record.get("skipped"):
            return None
        far = self._far_above(loss)
        if self._lasts:
            self._go_on(loss, far)
            return None
        if not far:
            self._losses.append(loss)
            return None
        self._lasts, self._calm = 1, 0
        return Failure("loss_spike", None, self._message(record), evidence={"loss": loss, "usual": self._median})

    def _far_above(self, loss: float) -> bool:
        assert self._limits is not None
        if len(self._losses) < ENOUGH:
            return False
        median = self._median
        if loss - median <= LEAST * abs(median):
            return False
        spread = DEVIATION * statistics.median(abs(one - median) for one in self._losses)
        return loss - median > self._limits.deviations * spread

    @property
    def _median(self) -> float:
        return statistics.median(self._losses)

    def _go_on(self, loss: float, far: bool) -> None:
        """A step within a spike."""
        assert self._limits is not None
        self._lasts, self._calm = self._lasts + 1, 0 if far else self._calm + 1
        if not far:
            self._losses.append(loss)
        if self._lasts > self._limits.window:
            self._losses.clear()
        if self._calm == CALM or not self._losses:
            self._lasts = 0

    def _message(self, record: dict[str, Any]) -> str:
        norm = "" if record.get("grad_norm") is None else f", gradient norm {record['grad_norm']:.3g}"
        rise = f"loss {record['loss']:.4g} in step {record['step']}{norm}"
        return f"{rise}, where the {len(self._losses)} steps before had {self._median:.4g} (median); training continues"
