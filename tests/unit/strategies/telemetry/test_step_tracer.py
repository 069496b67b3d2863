"""Categories sum to the step, whatever lies in what; nothing is kept when nobody records."""

import pytest

from shardyard.strategies.telemetry.step_tracer import SPANS, Recorded, Spans

AXES = {"3": "data"}


class HandClock:
    """A clock that is turned by hand."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        return self.at

    def seconds(self, start: float, end: float) -> float:
        return end - start


def traced() -> tuple[Recorded, Spans]:
    """A step: 1 s of nothing, a forward pass of 2 + 4 + 8 s of which 4 are a wait, 16 s of nothing, a wait of 32 s still open."""
    clock, spans = HandClock(), Spans()
    clock.at = 100.0
    early = clock.now()
    clock.at = 101.0
    spans.begin(clock, AXES)
    clock.at += 1
    with spans.within("forward", "model", 7, 1):
        clock.at += 2
        since = spans.moment()

        def arrive() -> str:
            clock.at += 4
            return "arrived"

        assert spans.waiting(arrive, "all_gather", "3", early) == "arrived"
        assert spans.waiting(lambda: "sync", "barrier", None, None) == "sync"
        clock.at += 8
        spans.behind("data", "collective", "reduce_scatter", since)
    clock.at += 16
    with spans.within("receive", "never ends"):
        clock.at += 32
        recorded = spans.end()
    return recorded, spans


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


def test_nobody_who_does_not_record_keeps_anything() -> None:
    _, spans = traced()
    assert not spans.on and spans.moment() is None
    with spans.within("forward", "model"):
        spans.behind("data", "collective", "all_gather", None)
    assert not spans._open and not spans._turns and not spans._ended


def test_a_span_that_fails_has_ended() -> None:
    clock, spans = HandClock(), Spans()
    spans.begin(clock, {})
    with pytest.raises(ZeroDivisionError), spans.within("backward", "model"):
        clock.at += 1
        _ = 1 / 0
    clock.at += 2
    sums = spans.end().sums
    assert sums["backward"] == 1.0 and sums["other"] == 2.0


def test_off_costs_one_look() -> None:
    assert SPANS.within("forward", "a") is SPANS.within("backward", "b")
