"""One rank's part in a trace: all ranks begin it with the same step, record it, and emit it when its last step is done.

Each rank votes for the trace that it has received with the step's sums (`strategies/grad_clip.py`), as for a stop request. Once all ranks
have it, the next step is the first. So a step that is not traced costs only one number in a sum that is made anyway. Clocks are aligned
before the first step and after the last; only then is anything emitted, outside of all steps. The size of the events is bounded. Snapshots
do not keep them: a trace during which a rank dies is lost, and the supervisor reports that.
"""

import time
from dataclasses import dataclass, field
from typing import Any, Final

import torch.distributed as dist

from ....strategies.pipeline_parallel.ideal_timeline import Replay
from ....strategies.telemetry.clock_sync import Aligned, Offset, offset_to_first
from ....strategies.telemetry.comm_counter import axes_of
from ....strategies.telemetry.device_clock import clock_of
from ....strategies.telemetry.step_tracer import TRAINING, Recorded, RecordedStep, Span
from ...messages.event import TraceEvent, read, to_json
from ...messages.rank_event import RankTraceFinishedEvent
from ...messages.trace_request import Trace, traced_ranks
from ..build import TrainerParts
from ..event_outbox import EmitEvent
from ..instruments import Instruments
from ..step_record import StepRecord, StepStats
from .base import Callback

#: Spans of a rank's step, and of a whole trace: the shortest are left out.
MOST_SPANS: Final = 4000
MOST_IN_ALL: Final = 400_000


@dataclass
class _Running:
    """The running trace. `last`: its last step. `epoch`: what the first rank adds to its clock for unix time."""

    trace: Trace
    first: int
    last: int
    epoch: float
    aligned: Offset | None = None
    steps: list[tuple[int, RecordedStep]] = field(default_factory=list)


class StepTrace(Callback):
    """Agrees on a trace with the other ranks, records its steps, emits them."""

    def __init__(self, parts: TrainerParts, emit: EmitEvent, instruments: Instruments) -> None:
        self._parts, self._emit, self._instruments = parts, emit, instruments
        self._tracer, self._pending = instruments.telemetry.tracer, instruments.pending_trace
        self._rank, self._world = dist.get_rank(), dist.get_world_size()
        self._running: _Running | None = None

    def before_step(self, step: int) -> None:  # noqa: ARG002
        """Align the clocks, outside of all steps. The step's time begins after this."""
        if self._running is None:
            return
        if self._running.aligned is None:
            with self._instruments.phase("trace"):
                self._running.aligned = offset_to_first(self._running.epoch)
        self._tracer.begin(clock_of(self._parts.mesh.device), axes_of(self._parts.mesh))

    def before_update(self, stats: StepStats) -> None:
        """Begin a trace after this step, if the sum of all votes requires it."""
        last = self._parts.spec.steps
        if stats.step < last and (trace := self._pending.begin(stats.trace_votes, self._world)):
            end = min(stats.step + trace.steps, last)
            self._running = _Running(trace, stats.step + 1, end, time.time() - time.perf_counter())

    def meets(self, step: int) -> bool:
        return self._running is not None and step == self._running.last

    def after_update(self, step: int) -> None:
        if self._running and self._tracer.on:
            self._running.steps.append((step, self._tracer.stop()))

    def after_step(self, record: StepRecord) -> None:
        """Collective if a trace ends with the step."""
        running = self._running
        ends = bool(record.stats.stop) or (running is not None and record.step == running.last)
        if running and running.aligned and running.steps and ends:
            with self._instruments.phase("trace"):
                self._conclude(running, running.aligned)
            self._running = None
            self._pending.end()

    def _conclude(self, running: _Running, first: Offset) -> None:
        clock = Aligned(first, offset_to_first(running.epoch))
        steps = [(step, taken.read()) for step, taken in running.steps]
        replays = self._parts.parallel.runner.replay([recorded for _, recorded in steps], clock)
        ranks = traced_ranks(self._world)
        if self._rank not in ranks:
            return
        most = min(MOST_SPANS, MOST_IN_ALL // (len(ranks) * len(steps)))
        for (step, recorded), replay in zip(steps, replays, strict=True):
            about = {"id": running.trace.id, "rank": self._rank, "step": step}
            part = read(TraceEvent, about | trace_event(recorded, clock, replay, most))
            self._emit(part.kind, to_json(part))
        numbers = [step for step, _ in steps]
        finished = RankTraceFinishedEvent(id=running.trace.id, rank=self._rank, steps=(numbers[0], numbers[-1]))
        self._emit(finished.kind, to_json(finished))


def trace_event(
    recorded: Recorded, clock: Aligned, replay: Replay | None = None, most: int = MOST_SPANS
) -> dict[str, Any]:
    """The `trace` event of one step of a rank, with the `most` longest spans."""
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
    """Microseconds. Starts and ends are rounded in the same way, so that nested spans stay nested."""
    return round(1e6 * seconds)
