"""What a trace costs the steps that it records, what busy and wait times cost, and what an event of a clock costs the host."""

import itertools
import time
from collections.abc import Iterator

from shardyard.strategies.telemetry.device_clock import clock_of
from shardyard.strategies.telemetry.step_sampling import COST, StepSampling
from shardyard.workers.messages.trace_request import Trace

from ..checks import Check, Place
from ..engine import Engine, interleaved, ratios, timed
from ..report import Line, measured, ratio

#: How much longer a step may take while it is traced.
TRACED = 1.02
EVENTS = 1000
#: They are recorded in this many rounds, each timed by itself.
ROUNDS = 20


def checks(at: Place) -> list[Check]:
    return [
        Check("an event", lambda: _event(at)),
        Check("busy and wait times", lambda: _busy(at)),
        Check("a traced step", lambda: _traced(at)),
    ]


def _event(at: Place) -> Iterator[Line]:
    clock = clock_of(at.device)
    at.synchronize()
    moments = [clock.now() for _ in range(EVENTS)]
    at.synchronize()
    reading = time.perf_counter()
    for start, end in itertools.pairwise(moments):
        clock.seconds(start, end)
    ended = time.perf_counter()
    yield measured("recording an event", 1e6 * _event_s(at), "µs")
    yield measured("reading the time between two", 1e6 * (ended - reading) / (EVENTS - 1), "µs")


def _event_s(at: Place) -> float:
    """Seconds of the host to record an event, of the shortest round: what else runs on the machine makes a round longer, never shorter."""
    clock, found = clock_of(at.device), []
    for _ in range(1 + ROUNDS):
        at.synchronize()
        began = time.perf_counter()
        for _ in range(EVENTS // ROUNDS):
            clock.now()
        found.append(time.perf_counter() - began)
    return min(found[1:]) / (EVENTS // ROUNDS)  # the first round makes what later ones reuse


class _Never(StepSampling):
    """No step is measured."""

    def due(self, step: int) -> bool:
        return False


def _busy(at: Place) -> Iterator[Line]:
    """The host's own account of its events, of the shortest one, and blocks with and without them in turn."""
    costs: list[float] = []
    with Engine(at, at.sizes.small.spec()) as engine:
        sampling, never = engine.loop._sampling, _Never(at.cuda)

        def block(by: StepSampling, steps: int) -> float:
            engine.loop._sampling = by
            took = engine.block(steps)
            costs.append(engine.instruments.telemetry.clock.cost_s)
            return took

        pairs = interleaved(at, lambda steps: block(sampling, steps), lambda steps: block(never, steps))
    cost_s, step_s = min(costs), min(pairs)[0]
    share = cost_s / sampling.every / step_s
    note = f"{1e6 * cost_s:.0f} µs in one step of {sampling.every}"
    yield measured("busy and wait times: share of the host's time", 100 * share, "%", at_most=100 * COST, note=note)
    yield ratio("a step with busy and wait times over one without", ratios(pairs))


def _traced(at: Place) -> Iterator[Line]:
    """Blocks with and without a trace, in turn. A trace begins a step before its block and ends a step after it."""
    steps, found = at.sizes.steps, []
    with Engine(at, at.sizes.small.spec()) as engine:
        engine.block(at.sizes.warm)
        for turn in range(at.sizes.turns):
            engine.instruments.pending_trace.order(Trace(f"trace-{turn}", steps + 2))
            engine.block(2)  # in the first the ranks agree on the trace, the second is its first step
            traced = timed(at, engine.step, steps)
            engine.block(1)
            found.append(traced / timed(at, engine.step, steps))
        traces = engine.of_kind("trace")
    spans, step_s = max(len(trace["spans"]) for trace in traces), min(trace["seconds"] for trace in traces)
    share = 2 * spans * _event_s(at) / step_s
    yield measured("spans of a traced step", spans, at_least=1)
    yield measured("a traced step: share of the host's time", 100 * share, "%", at_most=100 * COST)
    yield ratio("a traced step over one that is not", found, at_most=TRACED if at.cuda else None)
