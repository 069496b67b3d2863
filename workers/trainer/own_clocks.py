"""The training loop where each worker of parameter servers has a clock of its own (`strategies/data_parallel/clocks.py`).

A step of the loop is a clock. On a worker it ends when its gradients are pushed and it may pull; on a server when all workers have
finished that step, while faster ones may be ahead. No collective runs in it. What the sums over all ranks give elsewhere:

- Loss, gradient norm and speed travel with the pushes to the first server, and back to rank 0 once all workers have finished the step.
  So rank 0 reports a step later than it trains it, in order and once.
- A worker's gradients are clipped by their own norm, and the run ends if that is not finite, before they are pushed.
- A request to stop, or for a trace, is agreed on at a meeting of all ranks, which the worker that has the request asks for.

A worker that is gone is not waited for. The next meeting is then one of the ranks that are left: no collective can run there. Each takes a
snapshot of that step and ends, and the next generation does what follows the step, with all ranks.

All ranks also meet where they need one state: before and after probed steps, and for snapshots, checkpoints, validations, the ends of
traces, and the last step. At a meeting the servers' state is that after the same number of pushes of every worker, and the ranks run the
callbacks' collectives as in any other layout.
"""

import math
import time
from collections import deque
from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from ...strategies.data_parallel.clocks import Meeting
from ...strategies.data_parallel.stale_messages import Push
from ...strategies.data_parallel.stale_server import StaleServer
from ...strategies.data_parallel.stale_worker import StaleWorker
from ...strategies.grad_clip import clip_factor, sum_over_ranks
from ...strategies.layout import own_clocks
from ...strategies.telemetry.wait_time import StepTiming
from ..messages.stop_request import StopRequest, agreed_stop, stop_votes
from ..spec import TrainSpec
from .loop import Loop
from .optimizer import set_updates_done, updates_done
from .step_record import StepRecord, StepStats

#: Steps between two snapshots if the spec leaves that open. Each is a meeting, whose cost a measurement of copies does not see.
SNAPSHOT_EVERY: Final = 50


def snapshot_every(train: TrainSpec) -> int | None:
    """Steps between two snapshots; 0: none; None: as many as cost little."""
    every = train.snapshot.every
    meetings = own_clocks(train.layout) or train.ends_apart
    return SNAPSHOT_EVERY if every is None and meetings else every


@dataclass(frozen=True)
class OwnStep:
    """A step as one rank knows it: mean loss over its own samples, norm of its own mean gradient, and who is at its end together."""

    loss_share: torch.Tensor  # its summand of the step's loss
    loss: float
    grad_norm: float
    met: Meeting


class OwnClocks(Loop):
    """One rank's run, as a worker or as a server."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._start = self._updates = 0  # the step at which all clocks are 0, and the updates done until then
        self._began, self._newest_s = (
            0.0,
            0.0,
        )  # monotonic seconds of the step's begin, and the length of the one before
        self._met = False  # whether all ranks are at the end of the newest step
        self._late: deque[StepRecord] = deque()  # steps of rank 0 whose totals are not known yet
        if isinstance(data := self._exchanges, StaleServer):
            self._instruments.lost_ranks.listen(data.lose)  # the first ranks are the workers

    def _run(self) -> None:
        self._start, self._updates = self.state.step, updates_done(self.parts.optimizer)
        if self.state.unfinished:
            seen = StepRecord(self._stats(self._start, math.nan, 0.0, None), 0.0, 0.0)
            self.callbacks.after_step(seen)
        if self._start == self.parts.spec.steps:
            self._exchanges.close()
        super()._run()

    @property
    def _exchanges(self) -> StaleWorker | StaleServer:
        """The data strategy."""
        data = self.parts.parallel.data
        assert isinstance(data, StaleWorker | StaleServer)
        return data

    def train_step(self, step: int) -> StepRecord:
        """One step of this rank's clock."""
        self._began, stop = time.monotonic(), self._instruments.stop_request()
        self.callbacks.before_serving(step)
        self.batches.seed(step)
        lr = self.set_learning_rate(step)
        loss_share = self.passes(step)
        own = self._take_part(step, loss_share, stop)
        self._met = own.met == Meeting.ALL
        if own.met:
            self._exchanges.settle()
        self.callbacks.after_reduce(step)
        stats = self._at_meeting(step, own, stop) if self._met else self._apart(step, own)
        if stats.stop or step == self.parts.spec.steps:
            self._exchanges.close()
        self.callbacks.before_update(stats)
        self.callbacks.after_update(step)
        self._newest_s = time.monotonic() - self._began
        return StepRecord(stats, lr, self._newest_s)

    def ends_after(self, record: StepRecord) -> bool:
        """At a meeting from which a worker is missing the run ends, after the last step too."""
        if record.stats.stop != StopRequest.RETURN:
            return super().ends_after(record)
        self.callbacks.before_return(record.step)
        self._reporter.stopped(record.step)
        return True

    def report(self, record: StepRecord) -> None:
        """Report the step, or on rank 0 those of which all workers are known to have finished."""
        data = self.parts.parallel.data
        if not self._reporter.is_first:
            self.state.advance(record.step, record.stats.loss if self._met else None, record.seconds)
            self._reporter.step(record)
            return
        assert isinstance(data, StaleWorker)
        self._late.append(record)
        for total in data.take_totals():
            late = self._late.popleft()
            stats = replace(late.stats, loss=total.loss, grad_norm=math.sqrt(total.squares))
            known = replace(late, stats=stats, mean_s=1 / total.rate)
            self.state.advance(known.step, total.loss, known.seconds)
            self._reporter.step(known)

    def _take_part(self, step: int, loss_share: torch.Tensor, stop: StopRequest) -> OwnStep:
        """Exchange gradients and values, as a server or as a worker."""
        data = self._exchanges
        if isinstance(data, StaleServer):
            return self._serve(step, loss_share, data)
        return self._exchange(step, loss_share, stop, data)

    def _serve(self, step: int, loss_share: torch.Tensor, data: StaleServer) -> OwnStep:
        with self._instruments.phase("gradients"):
            met = data.serve(step - self._start, self._update)
        return OwnStep(loss_share, 0.0, 0.0, met)

    def _update(self, clock: int) -> None:
        """One worker's gradients of `clock`, at the rate of that step."""
        self.set_learning_rate(self._start + clock)
        self.parts.optimizer.step()

    def _exchange(self, step: int, loss_share: torch.Tensor, stop: StopRequest, data: StaleWorker) -> OwnStep:
        """Push this worker's gradients and pull values. A gradient is a summand of the mean over all: N times it is the worker's own."""
        spec, factor = self.parts.spec, self.parts.loss.factor
        workers = spec.layout.data
        with self._instruments.phase("gradients"):
            data.reduce()
            squares = data.square_sum()
        loss = loss_share.item() / factor
        norm = workers * math.sqrt(squares) / factor if math.isfinite(squares) else math.inf
        self.callbacks.before_push(step, workers * loss, norm)
        wanted = bool(stop) or self._instruments.pending_trace.vote(step) != 0
        clip = clip_factor(norm, spec.optimizer.clip_norm) / factor
        rate = 1 / max(self._newest_s or time.monotonic() - self._began, 1e-9)
        with self._instruments.phase("gradients"):
            data.push(Push(clip, loss, norm * norm, rate, wanted and step < spec.steps))
        with self._instruments.phase("publish"):
            met = data.pull(step == spec.steps or self.callbacks.meets(step))
        set_updates_done(self.parts.optimizer, self._updates + data.pushes)
        return OwnStep(loss_share, workers * loss, norm, met)

    def _at_meeting(self, step: int, own: OwnStep, stop: StopRequest) -> StepStats:
        """What all ranks agree on, and the step's loss, in one all-reduce."""
        logged = self._logged.ballot()
        ballot = (*stop_votes(stop), self._instruments.pending_trace.vote(step), *logged)
        with self._instruments.phase("norm"):
            loss, _, stops, saves, traces, *sums = sum_over_ranks(
                [], own.loss_share, self.parts.counts_loss, self.parts.mesh, *ballot
            )
            means = self._logged.means(sums)
        stats = self._stats(step, loss / self.parts.loss.factor, own.grad_norm, self.step_timing(step, ()))
        return replace(stats, stop=agreed_stop(stops, saves), trace_votes=traces, logged=means)

    def _apart(self, step: int, own: OwnStep) -> StepStats:
        """A step at whose end not all ranks are. At a meeting of those that are left the run ends, so that the others return."""
        stats = self._stats(step, own.loss, own.grad_norm, self.step_timing(step, ()))
        return replace(stats, stop=StopRequest.RETURN) if own.met else stats

    def _stats(self, step: int, loss: float, grad_norm: float, timing: StepTiming | None) -> StepStats:
        """A step at whose end nothing is agreed on."""
        return StepStats(
            step=step,
            loss=loss,
            grad_norm=grad_norm,
            grad_factor=1.0,
            loss_scale=None,
            skipped=False,
            stop=StopRequest.NO,
            trace_votes=0.0,
            timing=timing,
        )
