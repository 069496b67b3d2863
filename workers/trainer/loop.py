"""The training loop, as it reads in a textbook. `assemble.py` builds what it holds; every layout was applied before it starts."""

import math
import time
from collections.abc import Sequence
from functools import partial

import torch

from ...strategies.counted_targets import CountedTargets
from ...strategies.grad_clip import clip_factor, scale_gradients, sum_over_ranks
from ...strategies.logged_means import LoggedMeans
from ...strategies.precision import LossScale
from ...strategies.telemetry.step_sampling import StepSampling
from ...strategies.telemetry.wait_time import StepTiming
from ..messages.stop_request import StopRequest, agreed_stop, stop_votes
from .batches import Batches
from .build import TrainerParts
from .callbacks.base import Callbacks
from .instruments import Instruments
from .optimizer import learning_rate
from .reports import Reporter
from .step_record import StepRecord, StepStats
from .train_state import TrainState


class Loop:
    """One rank's run over the steps. `callbacks` do all that is not the algorithm."""

    def __init__(
        self,
        parts: TrainerParts,
        state: TrainState,
        batches: Batches,
        callbacks: Callbacks,
        reporter: Reporter,
        instruments: Instruments,
    ) -> None:
        self.parts, self.state, self.batches, self.callbacks = parts, state, batches, callbacks
        self._reporter, self._instruments = reporter, instruments
        self._sampling = StepSampling(parts.mesh.device.type == "cuda")
        self._logged = LoggedMeans(instruments.telemetry.logged, parts.mesh, parts.architecture is None)
        self._counted = CountedTargets(parts.tokens.end is not None, parts.counts_loss, parts.loss.tokens)

    def run(self) -> None:
        """Run all steps that are left, or until all ranks agree to stop."""
        try:
            with self._instruments.installed(self.parts.mesh.device):
                self._reporter.plan()
                self.callbacks.start()
                self._run()
        except BaseException:
            self.batches.close(wait=False)  # a source may need minutes for a batch, and an error is reported at once
            raise
        finally:
            self.batches.close()
            self.callbacks.close()

    def _run(self) -> None:
        first, last = self.state.step + 1, self.parts.spec.steps
        for step in range(first, last + 1):
            self._instruments.heartbeat.update("step" if step > first else "first step", step)
            self.callbacks.before_step(step)
            record = self.train_step(step)
            self.report(record)
            if self.ends_after(record):
                return
        self.callbacks.finish(last, StopRequest.NO)
        self._instruments.heartbeat.update("end", last)
        self._reporter.summary()

    def report(self, record: StepRecord) -> None:
        """Report a step that is done."""
        self.state.advance(record.step, record.stats.loss, record.seconds)
        self._reporter.step(record)

    def ends_after(self, record: StepRecord) -> bool:
        """Do what follows the step. Returns whether the run ends here, before its last step."""
        self.callbacks.after_step(record)
        if not record.stats.stop or record.step == self.parts.spec.steps:
            return False
        self.stop_early(record.step, record.stats.stop)
        return True

    def stop_early(self, step: int, stop: StopRequest) -> None:
        """Stop before the last step."""
        self.parts.parallel.data.settle()
        self.callbacks.finish(step, stop)
        self._reporter.stopped(step)

    def train_step(self, step: int) -> StepRecord:
        """One optimizer step on one global batch."""
        began, stop = time.monotonic(), self._instruments.stop_request()
        self.batches.seed(step)
        lr = self.set_learning_rate(step)
        loss_share = self.forward_backward(step)
        stats = self.reduce_and_clip(step, loss_share, stop)
        self.optimizer_step(stats)
        self.callbacks.after_update(step)
        return StepRecord(stats, lr, time.monotonic() - began)

    def forward_backward(self, step: int) -> torch.Tensor:
        """This rank's share of the loss. Gradients are reduced over the data ranks."""
        loss_share = self.passes(step)
        with self._instruments.phase("gradients"):
            self.parts.parallel.data.reduce()
        self.callbacks.after_reduce(step)
        return loss_share

    def passes(self, step: int) -> torch.Tensor:
        """This rank's share of the loss, after the forward and backward passes of its batch."""
        with self._instruments.phase("batch"):
            batch = self.batches.training(step)
            left = self.parts.spec.steps - step
            self.parts.parallel.runner.expect(partial(self.batches.following, step), left)
            self.parts.parallel.runner.prepare(batch[0])
        self._instruments.slowdown.apply()
        self.callbacks.before_forward(step)
        self._logged.begin()
        self._counted.begin()
        self._counted.add(batch[1])
        loss_share = self.parts.parallel.runner.train(*batch)
        self.callbacks.after_backward(step)
        return loss_share

    def reduce_and_clip(self, step: int, loss_share: torch.Tensor, stop: StopRequest) -> StepStats:
        """The global loss and gradient norm, and what all ranks agree on; gradients are unscaled and clipped."""
        stats = self._sum_over_ranks(step, loss_share, stop)
        self.callbacks.before_update(stats)
        if not stats.skipped:
            with self._instruments.phase("clip"):
                factor = clip_factor(stats.grad_norm, self.parts.spec.optimizer.clip_norm) / stats.grad_factor
                scale_gradients(self.parts.parallel.data.shards, factor)
        return stats

    def optimizer_step(self, stats: StepStats) -> None:
        """Update the parameters, if fp16 gradients did not overflow, and let the model compute with them."""
        if stats.skipped:
            self.parts.parallel.balance.forget()
        else:
            with self._instruments.phase("update"):
                self.parts.parallel.runner.before_update()
                self.parts.optimizer.step()
                self.parts.parallel.balance.update()
        with self._instruments.phase("publish"):
            self.parts.parallel.data.publish()

    def _sum_over_ranks(self, step: int, loss_share: torch.Tensor, stop: StopRequest) -> StepStats:
        """The only collective over all ranks in a step."""
        parts, scale = self.parts, self.parts.loss.scale
        measured, logged = self._sampling.votes(), self._logged.ballot()
        counted = self._counted.ballot()
        ballot = (*stop_votes(stop), self._instruments.pending_trace.vote(step), *counted, *measured, *logged)
        with self._instruments.phase("norm"):
            loss, squares, stops, saves, traces, *more = sum_over_ranks(
                parts.parallel.data.shards, loss_share, parts.counts_loss, parts.mesh, *ballot
            )
            share, more = self._counted.share(more), more[len(counted) :]
            intervals, sums = more[: len(measured)], more[len(measured) :]
            means = self._logged.means(sums)
        timing, factor = self.step_timing(step, intervals), parts.loss.factor * share
        return StepStats(
            step=step,
            loss=loss / factor,
            grad_norm=math.sqrt(squares) / factor if math.isfinite(squares) else math.inf,
            grad_factor=factor,
            loss_scale=None if scale is None else parts.loss.factor,
            skipped=_overflowed(scale, squares),
            stop=agreed_stop(stops, saves),
            trace_votes=traces,
            timing=timing,
            logged=means,
        )

    def step_timing(self, step: int, intervals: Sequence[float]) -> StepTiming | None:
        """The step's busy and wait time, if it was measured; decides whether the next one is, which a probe needs."""
        clock, sampling = self._instruments.telemetry.clock, self._sampling
        sampling.decide(intervals, self.parts.spec.layout.world_size)
        timing = clock.end_step(sampling.due(step + 1) or self.parts.spec.probe.due(step + 1))
        if timing is not None:
            sampling.measured(clock.cost_s, timing.busy_s + timing.wait_s)
        return timing

    def set_learning_rate(self, step: int) -> float:
        """The rate of the step, which the optimizer has from now on."""
        spec = self.parts.spec
        lr = learning_rate(step, spec.steps, spec.optimizer.lr, spec.schedule)
        for group in self.parts.optimizer.param_groups:
            group["lr"] = lr
        return lr


def _overflowed(scale: LossScale | None, squares: float) -> bool:
    """Whether fp16 gradients overflowed, in which case the step is skipped. Updates the loss scale."""
    if scale is None:
        return False
    overflow = not math.isfinite(squares)
    scale.update(overflow)
    return overflow
