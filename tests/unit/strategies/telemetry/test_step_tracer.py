"""Categories sum to the step, whatever lies in what; nothing is kept while the tracer is off."""

import pytest

from shardyard.strategies.telemetry.step_tracer import Recorded, StepTracer

AXES = {"3": "data"}


class HandClock:
    """A clock that is turned by hand."""

    def __init__(self) -> None:
        self.at, self.read = 0.0, 0

    def now(self) -> float:
        return self.at

    def seconds(self, start: float, end: float) -> float:
        self.read += 1
        return end - start


def traced() -> tuple[Recorded, StepTracer]:
    """A step: 1 s of nothing, a forward pass of 2 + 4 + 8 s of which 4 are a wait, 16 s of nothing, a wait of 32 s still open."""
    clock, tracer = HandClock(), StepTracer()
    clock.at = 100.0
    early = clock.now()
    clock.at = 101.0
    tracer.begin(clock, AXES)
    clock.at += 1
    with tracer.span("forward", "model", 7, 1):
        clock.at += 2
        since = tracer.now()

        def arrive() -> str:
            clock.at += 4
            return "arrived"

        assert tracer.collective(arrive, "all_gather", "3", early) == "arrived"
        assert tracer.collective(lambda: "sync", "barrier", None, None) == "sync"
        clock.at += 8
        tracer.record_async("data", "collective", "reduce_scatter", since)
    clock.at += 16
    with tracer.span("receive", "never ends"):
        clock.at += 32
        recorded = tracer.end()
    return recorded, tracer


def test_the_innermost_category_counts_and_all_of_them_are_the_step() -> None:
    recorded, _ = traced()
    assert recorded.seconds == 63.0
    counted = {category: seconds for category, seconds in recorded.sums.items() if seconds}
    assert counted == {"other": 17.0, "forward": 10.0, "collective": 4.0, "receive": 32.0}


def test_spans_lie_within_each_other_and_in_the_background() -> None:
    recorded, _ = traced()
    found = [(span.lane, span.name, span.start, span.end) for span in recorded.spans]
    assert found == [
        ("training", "all_gather data", 3.0, 7.0),
        ("data", "all_gather", -1.0, 7.0),
        ("training", "barrier world", 7.0, 7.0),
        ("data", "reduce_scatter", 3.0, 15.0),
        ("training", "model", 1.0, 15.0),
    ]
    (model,) = (span for span in recorded.spans if span.name == "model")
    assert (model.category, model.microbatch, model.stage) == ("forward", 7, 1)


def test_nothing_is_kept_while_it_is_off() -> None:
    _, tracer = traced()
    assert not tracer.on and tracer.now() is None
    with tracer.span("forward", "model"):
        tracer.record_async("data", "collective", "all_gather", None)
    assert not tracer._open and not tracer._turns and not tracer._ended


def test_a_span_that_fails_has_ended() -> None:
    clock, tracer = HandClock(), StepTracer()
    tracer.begin(clock, {})
    with pytest.raises(ZeroDivisionError), tracer.span("backward", "model"):
        clock.at += 1
        _ = 1 / 0
    clock.at += 2
    sums = tracer.end().sums
    assert sums["backward"] == 1.0 and sums["other"] == 2.0


def test_off_costs_one_look() -> None:
    tracer = StepTracer()
    assert tracer.span("forward", "a") is tracer.span("backward", "b")


def test_a_step_reads_no_time_and_what_was_taken_can_be_read_after_later_steps() -> None:
    """On CUDA reading waits for the device, which would then have nothing to do at the begin of the next step."""
    clock, tracer, taken = HandClock(), StepTracer(), []
    for seconds in (1.0, 2.0):
        tracer.begin(clock, AXES)
        with tracer.span("forward", "model"):
            clock.at += seconds
        taken.append(tracer.stop())
    assert clock.read == 0 and not tracer.on
    first, second = (one.read() for one in taken)
    assert (first.seconds, first.sums["forward"], len(first.spans)) == (1.0, 1.0, 1)
    assert (second.seconds, second.sums["forward"], second.spans[0].end) == (2.0, 2.0, 2.0)


def test_what_was_done_before_it_was_waited_for_ends_then() -> None:
    clock, tracer = HandClock(), StepTracer()
    tracer.begin(clock, AXES)
    since = tracer.now()
    clock.at += 5
    tracer.collective(lambda: None, "all_to_all", "3", since, lambda: 2.0)
    tracer.collective(lambda: None, "all_to_all", "3", since, lambda: None)
    spans = tracer.end().spans
    assert [(span.start, span.end) for span in spans if span.lane == "data"] == [(0.0, 2.0), (0.0, 5.0)]


def test_spans_of_two_passes_that_run_by_turns_are_cut_and_still_make_up_the_step() -> None:
    clock, tracer = HandClock(), StepTracer()
    tracer.begin(clock, {})
    with tracer.span("other", "schedule"):
        backward = tracer.capture()  # in which only the schedule is open
        with tracer.span("forward", "forward", 3, 0), tracer.span("forward", "loss"):
            clock.at += 1
            forward = tracer.capture()
            tracer.restore(backward)
            with tracer.span("backward", "backward", 1, 1):
                clock.at += 2
                backward = tracer.capture()
                tracer.restore(forward)
                clock.at += 4
                forward = tracer.capture()
                tracer.restore(backward)
                clock.at += 8
            clock.at += 16
            tracer.restore(forward)
            clock.at += 32
    recorded = tracer.end()
    assert {category: seconds for category, seconds in recorded.sums.items() if seconds} == {
        "other": 16.0,
        "forward": 37.0,
        "backward": 10.0,
    }
    found = [(span.name, span.start, span.end) for span in recorded.spans]
    assert found == [
        ("loss", 0.0, 1.0),
        ("forward", 0.0, 1.0),
        ("backward", 1.0, 3.0),
        ("loss", 3.0, 7.0),
        ("forward", 3.0, 7.0),
        ("backward", 7.0, 15.0),
        ("loss", 31.0, 63.0),
        ("forward", 31.0, 63.0),
        ("schedule", 0.0, 63.0),
    ]
    assert {(span.microbatch, span.stage) for span in recorded.spans if span.name == "backward"} == {(1, 1)}


def test_two_passes_leave_nothing_while_it_is_off() -> None:
    tracer = StepTracer()
    tracer.restore(tracer.capture())
    assert not tracer._open and not tracer._turns and not tracer._ended
