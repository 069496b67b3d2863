"""One rank's part in a trace: all ranks begin it with the same step, record it, and tell it when its last step is done.

Whether a rank has heard the wish travels with the step's sums (`strategies/grad_clip.py`), as the wish to end does: once all have, the next
step is the first. So a step that nobody traces pays one number in a sum that is made anyway. Clocks are aligned before the first
step and after the last; only then is anything told, outside of all steps. What is told is bounded, and not remembered in snapshots:
who dies amid a trace takes it along, and the gang says so.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import torch.distributed as dist

from ....strategies.pipeline_parallel.ideal_timeline import Replay
from ....strategies.telemetry.clock_sync import Aligned, Offset, offset_to_first
from ....strategies.telemetry.comm_counter import axes_of
from ....strategies.telemetry.device_clock import clock_of
from ....strategies.telemetry.step_tracer import SPANS, TRAINING, Recorded, Span
from ....strategies.telemetry.wait_time import ASIDE
from ...messages.trace_request import WISH, Trace, Wish, traced_ranks, vote
from ..build import Built

#: Spans of a rank's step, and of a whole trace: the shortest are left out.
MOST_SPANS: Final = 4000
MOST_IN_ALL: Final = 400_000


@dataclass
class _Running:
    """The trace that is under way: `last` is its last step, `epoch` what the first rank adds to its clock for unix time."""

    trace: Trace
    first: int
    last: int
    epoch: float
    aligned: Offset | None = None
    steps: list[tuple[int, Recorded]] = field(default_factory=list)


class Tracing:
    """Agrees with the other ranks, records, tells."""

    def __init__(self, built: Built, tell: Callable[[str, dict[str, Any]], None], wish: Wish = WISH) -> None:
        self._built, self._tell, self._wish = built, tell, wish
        self._rank, self._world = dist.get_rank(), dist.get_world_size()
        self._running: _Running | None = None
        self._offered: Trace | None = None  # for which this rank has voted last

    def vote(self, step: int) -> float:
        """This rank's summand: whether it has heard of a trace that may begin after `step`."""
        self._offered = None if self._running else self._wish.after(step)
        return vote(self._offered)

    def agree(self, votes: float, step: int) -> None:
        """By the sum of all votes: whether a trace begins after `step`. What came in since this rank voted counts for nothing."""
        trace = self._offered
        if trace and votes == vote(trace) * self._world and step < self._built.run.train.steps:
            self._wish.take(trace)
            last = min(step + trace.steps, self._built.run.train.steps)
            self._running = _Running(trace, step + 1, last, time.time() - time.perf_counter())

    def before(self) -> None:
        """Called before each step, whose time does not begin yet."""
        if self._running and self._running.aligned is None:
            with ASIDE:
                self._running.aligned = offset_to_first(self._running.epoch)

    def begin(self) -> None:
        """The step's time begins."""
        if self._running:
            SPANS.begin(clock_of(self._built.mesh.device), axes_of(self._built.mesh))

    def end(self, step: int) -> None:
        """The step's time ends."""
        if self._running and SPANS.on:
            self._running.steps.append((step, SPANS.end()))

    def after(self, step: int, ends: bool) -> None:
        """Called after each step; `ends`: there will be no other. Collective where a trace ends with it."""
        running = self._running
        if running and running.aligned and running.steps and (ends or step == running.last):
            with ASIDE:
                self._conclude(running, running.aligned)
            self._running = None

    def _conclude(self, running: _Running, first: Offset) -> None:
        clock = Aligned(first, offset_to_first(running.epoch))
        replays = self._built.parallel.runner.replay([recorded for _, recorded in running.steps], clock)
        ranks = traced_ranks(self._world)
        if self._rank not in ranks:
            return
        most = min(MOST_SPANS, MOST_IN_ALL // (len(ranks) * len(running.steps)))
        for (step, recorded), replay in zip(running.steps, replays, strict=True):
            about = {"id": running.trace.id, "rank": self._rank, "step": step}
            self._tell("trace", about | told(recorded, clock, replay, most))
        numbers = [step for step, _ in running.steps]
        self._tell("traced", {"id": running.trace.id, "rank": self._rank, "steps": [numbers[0], numbers[-1]]})


def told(recorded: Recorded, clock: Aligned, replay: Replay | None = None, most: int = MOST_SPANS) -> dict[str, Any]:
    """What a `trace` event says of one step of a rank, with the `most` longest spans."""
    began = clock.common(recorded.began)
    longest = sorted(recorded.spans, key=lambda span: span.start - span.end)[:most]
    lanes = [TRAINING, *sorted({span.lane for span in longest} - {TRAINING})]
    return {
        "began": began,
        "seconds": recorded.seconds,
        "error_s": clock.error_s,
        "sums": dict(recorded.sums),
        "spans": [_row(span, lanes) for span in sorted(longest, key=lambda span: (span.start, -span.end))],
        "lanes": lanes,
        "dropped": len(recorded.spans) - len(longest),
        "pipeline": None if replay is None else _pipeline(replay, began),
    }


def _row(span: Span, lanes: list[str]) -> list[Any]:
    start, end = _us(span.start), _us(span.end)
    return [lanes.index(span.lane), span.category, span.name, start, end - start, span.microbatch, span.stage]


def _pipeline(replay: Replay, began: float) -> dict[str, Any]:
    ideal: list[list[Any]] = []
    for timed in replay.ideal:
        start, end = _us(timed.start - began), _us(timed.end - began)
        ideal.append([timed.action.kind, timed.action.stage, timed.action.microbatch, start, end - start])
    bubbles = {"bubble_measured": replay.bubble.measured, "bubble_simulated": replay.bubble.simulated}
    return {"place": replay.place, **bubbles, "ideal": ideal}


def _us(seconds: float) -> int:
    """Rounding starts and ends alike keeps spans within those that they lie in."""
    return round(1e6 * seconds)
