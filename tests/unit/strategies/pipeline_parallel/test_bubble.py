"""The time of an action is that of its laps: a loss is its forward pass's, and two passes that run by turns share no time."""

from shardyard.strategies.pipeline_parallel.bubble import BubbleTimer
from shardyard.strategies.pipeline_parallel.schedule_order import Action

FORWARD, BACKWARD = Action("F", 0, 3), Action("B", 1, 1)


class HandClock:
    """A clock that is turned by hand."""

    def __init__(self) -> None:
        self.at, self.taken = 0.0, 0

    def now(self) -> float:
        self.taken += 1
        return self.at

    def seconds(self, start: float, end: float) -> float:
        return end - start


def test_two_passes_that_run_by_turns_have_their_turns_and_the_loss_is_the_forward_passes() -> None:
    clock = HandClock()
    timer = BubbleTimer(clock)
    of_schedule = timer.capture()
    timer.restore(FORWARD)
    clock.at += 1
    forward = timer.capture()
    timer.restore(of_schedule)
    clock.at += 10  # a message
    timer.restore(BACKWARD)
    clock.at += 100
    backward = timer.capture()
    timer.restore(forward)
    clock.at += 1000
    timer.restore(of_schedule)
    timer.restore(backward)
    clock.at += 10_000
    timer.restore(of_schedule)

    def loss() -> None:
        clock.at += 100_000

    timer.loss(loss)()
    assert timer.seconds == {FORWARD: 101_001, BACKWARD: 10_100}


def test_between_actions_it_looks_at_no_clock() -> None:
    clock = HandClock()
    timer = BubbleTimer(clock)
    timer.restore(timer.capture())
    assert not clock.taken and not timer.laps
