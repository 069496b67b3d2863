"""A step's time is divided into a rank's own and what it waits, to the last second."""

from contextlib import suppress

from shardyard.strategies.telemetry.wait_time import OWN_TIME, WAITING, WORKING, Lap, OwnTime, waited


class HandClock:
    """A clock that is turned by hand."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        return self.at

    def seconds(self, start: float, end: float) -> float:
        return end - start


def hand() -> tuple[OwnTime, HandClock]:
    own_time, clock = OwnTime(), HandClock()
    own_time.clock = clock
    return own_time, clock


def test_waits_and_the_work_within_them_are_told_apart() -> None:
    own_time, clock = hand()
    with own_time.counting():
        clock.at += 1
        own_time.enter("waiting")
        clock.at += 10
        own_time.enter("own")
        clock.at += 100
        own_time.leave()
        clock.at += 1000
        own_time.leave()
        clock.at += 10_000
        assert own_time.lap() == Lap(10_101, 1010)
        clock.at += 1
        assert own_time.lap() == Lap(1, 0)


def test_what_stands_aside_counts_to_nothing_whatever_it_waits_for() -> None:
    own_time, clock = hand()
    with own_time.counting():
        clock.at += 1
        own_time.enter("aside")
        clock.at += 10
        own_time.enter("waiting")
        clock.at += 100
        own_time.leave()
        own_time.leave()
        clock.at += 1000
        assert own_time.lap() == Lap(1001, 0)


def test_nobody_who_does_not_count_keeps_anything() -> None:
    own_time, clock = hand()
    for _ in range(3):
        own_time.enter("waiting")
        clock.at += 1
        own_time.leave()
    assert own_time.lap() == Lap(0, 0)


def test_a_wait_that_fails_has_ended() -> None:
    with OWN_TIME.counting():
        with suppress(ZeroDivisionError), WAITING, WORKING:
            waited(lambda: 1 / 0, "nothing")
        before = OWN_TIME.lap()
        assert before.own_s > 0 and before.waited_s > 0
        assert waited(lambda: "result", "nothing") == "result"
        after = OWN_TIME.lap()
    assert after.own_s > 0 and after.waited_s > 0
