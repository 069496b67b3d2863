"""Who may pull, and when all meet: by hand, and in drawn orders in which no worker may ever be stuck."""

import random

import pytest
from harness.recorded_pushes import behind, furthest_ahead, met

from shardyard.strategies.data_parallel.clocks import Clocks, Entry

WORKERS = (0, 1, 2)


def begun(ahead: int) -> Clocks:
    """Clocks of three workers that have their first values."""
    clocks = Clocks(len(WORKERS), ahead)
    for worker in WORKERS:
        clocks.ask(worker, meets=True)
    assert sorted(clocks.answers()) == [(worker, True) for worker in WORKERS]
    assert clocks.met == 0
    return clocks


def step(clocks: Clocks, worker: int, meets: bool = False) -> list[tuple[int, bool]]:
    """The worker pushes, and asks for values."""
    clocks.push(worker)
    assert clocks.answers() == []
    clocks.ask(worker, meets)
    return sorted(clocks.answers())


def test_the_first_values_are_for_all_together() -> None:
    clocks = Clocks(2, 3)
    clocks.ask(1, meets=True)
    assert clocks.answers() == [] and not clocks.passed(0)
    clocks.ask(0, meets=True)
    assert sorted(clocks.answers()) == [(0, True), (1, True)] and clocks.passed(0) and not clocks.passed(1)


@pytest.mark.parametrize("bound", [1, 2, 5])
def test_the_bound_is_the_number_of_clocks_that_a_worker_may_be_ahead(bound: int) -> None:
    clocks = begun(bound)
    for _ in range(bound):
        assert step(clocks, 0) == [(0, False)]
    assert step(clocks, 0) == []
    assert step(clocks, 1) == [(1, False)], "worker 2 has not pushed"
    clocks.push(2)
    assert clocks.answers() == [(0, False)], "the push of the slowest worker lets the first one go on"
    assert not clocks.passed(1)
    clocks.ask(2, meets=False)
    assert clocks.answers() == [(2, False)] and clocks.passed(1) and not clocks.passed(2)


def test_with_a_bound_of_0_every_clock_is_a_meeting() -> None:
    clocks = begun(0)
    assert step(clocks, 2) == step(clocks, 0) == []
    assert step(clocks, 1) == [(0, True), (1, True), (2, True)]
    assert clocks.met == 1


def test_at_a_meeting_all_wait_for_the_slowest_and_faster_ones_are_not_let_by() -> None:
    clocks = begun(5)
    assert step(clocks, 0) == [(0, False)]
    assert step(clocks, 0, meets=True) == []
    for worker in (1, 2):
        assert step(clocks, worker) == [(worker, False)]
        found = step(clocks, worker, meets=True)
    assert found == [(0, True), (1, True), (2, True)]
    assert clocks.met == 2


def test_a_meeting_that_is_wanted_at_once_is_at_the_newest_step_that_a_worker_has_begun() -> None:
    clocks = begun(5)
    for _ in range(2):
        step(clocks, 0)
    clocks.push(1)
    clocks.meet_soon()  # worker 0 is in its third step, and the others are in their first
    for _ in range(2):
        clocks.ask(1, meets=False)
        assert clocks.answers() == [(1, False)]
        clocks.push(1)
    clocks.ask(1, meets=False)
    assert clocks.answers() == []
    assert step(clocks, 0) == []
    assert [step(clocks, 2) for _ in range(3)] == [[(2, False)], [(2, False)], [(0, True), (1, True), (2, True)]]
    assert clocks.met == 3
    assert step(clocks, 0) == [(0, False)], "it is over"


def test_nothing_is_recorded_unless_it_is_asked_for() -> None:
    clocks = begun(1)
    step(clocks, 0)
    assert clocks.record is None
    clocks.record = []
    step(clocks, 1)
    assert clocks.record == [Entry("push", 1, 1), Entry("pull", 1, 1)]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("ahead", [0, 1, 3, 1000])
def test_in_any_order_no_worker_is_stuck_and_the_rules_hold(ahead: int, seed: int) -> None:
    draw, workers, steps, together = random.Random(seed), 4, 20, (7, 8, 20)
    clocks = Clocks(workers, ahead)
    clocks.record = []
    pushed, ready, asked, meetings = [0] * workers, set(range(workers)), set[int](), set[int]()
    wanted = draw.randrange(1, steps)
    while min(pushed) < steps or asked:
        worker = draw.choice(sorted({w for w in ready if pushed[w] < steps} | asked))
        if worker in ready:
            ready.remove(worker)
            asked.add(worker)
            pushed[worker] += 1
            clocks.push(worker)
            if pushed[worker] == wanted:
                clocks.meet_soon()
        else:
            asked.remove(worker)
            clocks.ask(worker, pushed[worker] in together)
        for found, meets in clocks.answers():
            ready.add(found)
            meetings |= {pushed[found]} if meets else set()
    assert ready == set(range(workers)) and clocks.passed(steps) and clocks.met == steps
    record = [(one.kind, one.worker, one.clock) for one in clocks.record]
    assert furthest_ahead(record, workers) <= ahead
    assert behind(record, workers) <= (2 * ahead + 1) * (workers - 1)
    assert all(met(record, clock, workers) for clock in meetings)
    at_once = meetings - set(together)
    assert set(together) <= meetings and any(clock >= wanted for clock in meetings)
    assert at_once == set(range(1, steps + 1)) - set(together) if ahead == 0 else len(at_once) <= 1
