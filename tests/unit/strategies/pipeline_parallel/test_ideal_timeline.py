"""A pipeline's step as it was, beside its simulation: by hand, two stages and two micro-batches of GPipe."""

import pytest

from shardyard.strategies.pipeline_parallel.ideal_timeline import (
    BACKWARD,
    FORWARD,
    LOSS,
    SCHEDULE,
    Passes,
    passes_of,
    replay,
)
from shardyard.strategies.pipeline_parallel.schedule_order import Action, order_of
from shardyard.strategies.telemetry.clock_sync import Aligned, Offset
from shardyard.strategies.telemetry.step_tracer import TRAINING, Recorded, Span

ORDER = order_of(None, "gpipe", 2, 2)


def passes(rank: int, began: float, ended: float, length: float = 1.0) -> Passes:
    seconds = {Action(kind, rank, batch): length for kind in ("F", "B") for batch in (0, 1)}  # type: ignore[arg-type]
    return Passes(seconds, began, ended)


def test_the_bubble_is_what_no_pass_fills_from_the_first_begin_to_the_last_end() -> None:
    everyone = [passes(0, 50.0, 57.0), passes(1, 50.5, 56.0)]
    found = replay(ORDER, everyone, 1)
    assert found.place == 1
    assert found.bubble.measured == pytest.approx(1 - 4 / 7)  # 7 s, of which a rank works 4
    assert found.bubble.simulated == pytest.approx(1 / 3)  # (p − 1) / (m + p − 1)
    ideal = [(str(timed.action), timed.start, timed.end) for timed in found.ideal]
    assert ideal == [("1F0", 51.0, 52.0), ("1F1", 52.0, 53.0), ("1B0", 53.0, 54.0), ("1B1", 54.0, 55.0)]


def test_passes_are_read_off_the_spans_with_the_loss_in_its_forward_pass() -> None:
    spans = [
        Span(TRAINING, "forward", FORWARD, 1.0, 2.0, 0, 1),
        Span(TRAINING, "forward", LOSS, 2.0, 2.5),
        Span("pipeline", "receive", "receive", 0.0, 3.0),
        Span(TRAINING, "backward", BACKWARD, 3.0, 5.0, 0, 1),
        Span(TRAINING, "other", SCHEDULE, 0.5, 6.0),
    ]
    zero = Offset(0.0, 1000.0, 0.0)
    found = passes_of(Recorded(10.0, 7.0, {}, spans), Aligned(zero, zero))
    assert found == Passes({Action("F", 1, 0): 1.5, Action("B", 1, 0): 2.0}, 1010.5, 1016.0)


def test_a_pass_that_ran_by_turns_takes_the_sum_of_its_spans() -> None:
    spans = [
        Span(TRAINING, "forward", FORWARD, 0.0, 1.0, 3, 1),
        Span(TRAINING, "backward", BACKWARD, 1.0, 3.0, 1, 0),
        Span(TRAINING, "forward", FORWARD, 3.0, 7.0, 3, 1),
        Span(TRAINING, "backward", BACKWARD, 7.0, 15.0, 1, 0),
        Span(TRAINING, "forward", LOSS, 15.0, 31.0),
    ]
    zero = Offset(0.0, 1000.0, 0.0)
    found = passes_of(Recorded(0.0, 31.0, {}, spans), Aligned(zero, zero))
    assert found.seconds == {Action("F", 1, 3): 21.0, Action("B", 0, 1): 10.0}
