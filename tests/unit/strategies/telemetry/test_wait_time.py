"""A step's time is divided into busy and wait time, to the last second."""

from shardyard.strategies.telemetry.wait_time import StepTiming, WaitClock


class HandClock:
    """A clock that is turned by hand."""

    def __init__(self) -> None:
        self.at, self.taken = 0.0, 0

    def now(self) -> float:
        self.taken += 1
        return self.at

    def seconds(self, start: float, end: float) -> float:
        return end - start


def both() -> tuple[WaitClock, HandClock]:
    return WaitClock(), HandClock()


def test_waits_and_the_work_within_them_are_kept_apart() -> None:
    waits, clock = both()
    with waits.running(clock):
        clock.at += 1
        waits.enter("waiting")
        clock.at += 10
        waits.enter("busy")
        clock.at += 100
        waits.leave()
        clock.at += 1000
        waits.leave()
        clock.at += 10_000
        assert waits.end_step() == StepTiming(10_101, 1010)
        clock.at += 1
        assert waits.end_step() == StepTiming(1, 0)


def test_what_is_excluded_is_neither_busy_nor_wait_time() -> None:
    waits, clock = both()
    with waits.running(clock):
        clock.at += 1
        waits.enter("excluded")
        clock.at += 10
        waits.enter("waiting")
        clock.at += 100
        waits.leave()
        waits.leave()
        clock.at += 1000
        assert waits.end_step() == StepTiming(1001, 0)


def test_nothing_is_kept_while_it_does_not_run() -> None:
    waits, clock = both()
    for _ in range(3):
        waits.enter("waiting")
        clock.at += 1
        waits.leave()
    assert waits.end_step() == StepTiming(0, 0)


def test_a_lap_that_is_not_measured_takes_no_moment_and_keeps_the_modes() -> None:
    """The contexts open at its begin are still those at its end."""
    waits, clock = both()
    with waits.running(clock):
        clock.at += 1
        waits.enter("waiting")
        assert waits.end_step(then=False) == StepTiming(1, 0)
        taken = clock.taken
        clock.at += 10
        waits.enter("busy")
        clock.at += 100
        waits.leave()
        waits.leave()
        waits.enter("excluded")
        assert clock.taken == taken
        assert waits.end_step() is None
        clock.at += 1000
        waits.leave()
        clock.at += 10_000
        assert waits.end_step() == StepTiming(10_000, 0)


def test_its_own_cost_is_that_of_the_last_measured_step() -> None:
    waits, clock = both()
    with waits.running(clock):
        waits.enter("waiting")
        waits.leave()
        waits.end_step(then=False)
        cost = waits.cost_s
        assert cost > 0
        waits.enter("waiting")
        waits.leave()
        waits.end_step()
        assert waits.cost_s == cost


def test_two_passes_that_run_by_turns_have_modes_of_their_own() -> None:
    waits, clock = both()
    with waits.running(clock), waits.waiting:
        backward = waits.capture()
        with waits.busy:
            clock.at += 1
            forward = waits.capture()
            waits.restore(backward)
            clock.at += 10  # for a message
            with waits.busy:
                clock.at += 100
                backward = waits.capture()
                waits.restore(forward)
                clock.at += 1000
                waits.restore(backward)
            clock.at += 10_000
            waits.restore(forward)
            clock.at += 100_000
        assert waits.end_step() == StepTiming(101_101, 10_010)


def test_modes_are_kept_apart_only_while_it_runs() -> None:
    waits, _ = both()
    waits.restore(waits.capture())
    assert waits.capture() == ()
