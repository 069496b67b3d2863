"""The training loop of a pipeline whose ranks end a step at different times: one with delayed gradients, without clipping.

A rank's update needs its own gradients alone (`strategies/pipeline_parallel/stashing.py`, `alternating.py`). A sum over all ranks at the
end of each step would make the last rank wait for the first one's backward pass. So the sum of a step is started there, and read later:
by 2BW one step, by PipeDream p steps, for p stages. By then it is there, and no rank waits for it. What follows from it comes as late:

- Loss, gradient norm and the rank's times are reported once the sum is read, in order and once, on all ranks.
- A rank whose own gradients are not finite makes no update. All ranks end the run when they read that step's sum.
- A rank with a request to stop, or for a trace, says so in its summands. All ranks read that after the same step, and the next one is
  a meeting.

A meeting is a step that all ranks end together, as in any other layout: earlier sums are read, and its own is read at once. Meetings are
the first and the last step, and those whose callbacks need one state of all ranks: snapshots, checkpoints, validations, probed steps,
ends of traces. Each costs about the time that the pipeline takes to fill again.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from ...strategies.grad_clip import scale_gradients, square_sum, start_sum
from ..messages.stop_request import StopRequest
from .loop import Loop
from .step_record import StepRecord, StepStats


class LateSums(Loop):
    """One rank's run."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._started: deque[tuple[int, Callable[[], tuple[float, ...]]]] = deque()  # step → its sums, not read yet
        self._known: deque[tuple[float, float]] = deque()  # loss and gradient norm that were read and not reported
        self._late: deque[StepRecord] = deque()  # those of steps that were not reported
        layout = self.parts.spec.layout
        self._lag = layout.pipeline if layout.schedule == "pipedream" else 1  # steps after which a sum is read
        self._met = False  # whether all ranks ended the newest step together
        self._wanted = (
            True  # whether a rank wants to meet at the next step: at the first one, so that it is reported at once
        )

    def reduce_and_clip(self, step: int, loss_share: torch.Tensor, stop: StopRequest) -> StepStats:
        """What all ranks agree on, at a meeting. Else the sum is started, and nothing is agreed on."""
        self._met = self._wanted or step == self.parts.spec.steps or self.callbacks.meets(step)
        if not self._met:
            return self._apart(step, loss_share, stop)
        self._read(0)
        self._wanted = False
        return super().reduce_and_clip(step, loss_share, stop)

    def report(self, record: StepRecord) -> None:
        """Report the steps whose sums are known."""
        self._late.append(record)
        self._report_known()
        if self._met:
            super().report(self._late.popleft())

    def _report_known(self) -> None:
        while self._known:
            (loss, grad_norm), late = self._known.popleft(), self._late.popleft()
            super().report(replace(late, stats=replace(late.stats, loss=loss, grad_norm=grad_norm)))

    def _apart(self, step: int, loss_share: torch.Tensor, stop: StopRequest) -> StepStats:
        """Start the step's sum, and read the one that is due."""
        parts = self.parts
        wants = bool(stop) or self._instruments.pending_trace.vote(step) != 0
        shards, factor = parts.parallel.data.shards, parts.loss.factor
        with self._instruments.phase("norm"):
            summing = start_sum(shards, loss_share, parts.counts_loss, parts.mesh, float(wants))
            self._started.append((step, summing))
            mine = square_sum([shard.gradient for shard in shards if shard.gradient is not None], parts.mesh.device)
            finite = math.isfinite(mine.item())
            self._read(self._lag)
        stats = replace(self._unknown(step), skipped=not finite, timing=self.step_timing(step, ()))
        self.callbacks.before_update(stats)
        if finite:
            scale_gradients(shards, 1 / factor)
        return stats

    def _read(self, left: int) -> None:
        """Read the oldest sums, until only `left` of them are not read. Raises `Diverged`, on all ranks, where one is not finite."""
        factor = self.parts.loss.factor
        while len(self._started) > left:
            step, result = self._started.popleft()
            loss, squares, wanted = result()
            norm = math.sqrt(squares) / factor if math.isfinite(squares) else math.inf
            self._wanted = self._wanted or wanted > 0
            if not (math.isfinite(loss) and math.isfinite(squares)):
                self._report_known()
                self.callbacks.before_update(replace(self._unknown(step), loss=loss / factor, grad_norm=norm))
            self._known.append((loss / factor, norm))

    def _unknown(self, step: int) -> StepStats:
        """A step of whose sums nothing is known yet."""
        return StepStats(
            step=step,
            loss=0.0,
            grad_norm=0.0,
            grad_factor=self.parts.loss.factor,
            loss_scale=None,
            skipped=False,
            stop=StopRequest.NO,
            trace_votes=0.0,
            timing=None,
        )
