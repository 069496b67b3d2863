"""Who may pull, and when all meet: by hand, and in drawn orders in which no worker may ever be stuck."""

import random

import pytest
from harness.recorded_pushes import behind, furthest_ahead, met

from shardyard.strategies.data_parallel.clocks import Clocks, Entry, Meeting

WORKERS = (0, 1, 2)


def begun(ahead: int) -> Clocks:
    """Clocks of three workers that have their first values."""
    clocks = Clocks(len(WORKERS), ahead)
    for worker in WORKERS:
        clocks.ask(worker, meets=True)
    assert sorted(clocks.answers()) == [(worker, Meeting.ALL) for worker in WORKERS]
    assert clocks.meeting(0) == Meeting.ALL
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
    assert clocks.meeting(1) and not clocks.meeting(0)


def test_at_a_meeting_all_wait_for_the_slowest_and_faster_ones_are_not_let_by() -> None:
    clocks = begun(5)
    assert step(clocks, 0) == [(0, False)]
    assert step(clocks, 0, meets=True) == []
    for worker in (1, 2):
        assert step(clocks, worker) == [(worker, False)]
        found = step(clocks, worker, meets=True)
    assert found == [(0, True), (1, True), (2, True)]
    assert clocks.meeting(2)


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
    assert clocks.meeting(3)
    assert step(clocks, 0) == [(0, False)], "it is over"


def test_a_worker_that_is_gone_is_waited_for_no_more() -> None:
    clocks = begun(1)
    assert step(clocks, 0) == [(0, False)]
    assert step(clocks, 1) == [(1, False)]
    assert step(clocks, 0) == [] and step(clocks, 1) == [], "worker 2 has not pushed"
    assert not clocks.passed(1)
    clocks.leave(2)
    assert sorted(clocks.answers()) == [(0, False), (1, False)]
    assert clocks.passed(2) and clocks.pushes == 4
    assert step(clocks, 0, meets=True) == []
    assert step(clocks, 1, meets=True) == [(0, Meeting.PARTIAL), (1, Meeting.PARTIAL)]
    assert clocks.meeting(3) == Meeting.PARTIAL


def test_one_that_is_gone_while_it_waits_does_not_meet() -> None:
    clocks = begun(5)
    clocks.record = []
    assert step(clocks, 1, meets=True) == step(clocks, 2, meets=True) == []
    clocks.leave(1)
    assert clocks.answers() == []
    assert step(clocks, 0, meets=True) == [(0, Meeting.PARTIAL), (2, Meeting.PARTIAL)]
    assert Entry("leave", 1, 1) in clocks.record and Entry("pull", 1, 1) not in clocks.record


def test_a_meeting_that_is_wanted_at_once_is_not_before_the_pushes_of_one_that_is_gone() -> None:
    clocks = begun(5)
    for _ in range(3):
        step(clocks, 2)
    clocks.leave(2)
    clocks.push(0)
    clocks.meet_soon()
    clocks.ask(0, meets=False)
    found = clocks.answers()
    while not any(meets for _, meets in found):
        found = [answer for worker, _ in found for answer in step(clocks, worker)] or step(clocks, 1)
    assert clocks.meeting(3) == Meeting.PARTIAL


def test_nothing_is_recorded_unless_it_is_asked_for() -> None:
    clocks = begun(1)
    step(clocks, 0)
    assert clocks.record is None
    clocks.record = []
    step(clocks, 1)
    assert clocks.record == [Entry("push", 1, 1), Entry("pull", 1, 1)]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("ahead", [0, 1, 3, 1000])
def test_when_workers_leave_at_any_moment_the_others_meet_and_the_rules_hold(ahead: int, seed: int) -> None:
    draw, workers, steps = random.Random(seed), 4, 12
    clocks = Clocks(workers, ahead)
    clocks.record = []
    pushed, ready, asked, left = [0] * workers, set(range(workers)), set[int](), set(range(workers))
    leaving = {draw.randrange(5, 60): worker for worker in draw.sample(range(1, workers), 2)}
    for turn in range(1000):
        if clocks.passed(steps):
            break
        if (gone := leaving.get(turn)) is not None:
            clocks.leave(gone)
            left.remove(gone)
            ready.discard(gone)
            asked.discard(gone)
        elif able := sorted({w for w in ready if pushed[w] < steps} | asked):
            worker = draw.choice(able)
            if worker in ready:
                ready.remove(worker)
                asked.add(worker)
                pushed[worker] += 1
                clocks.push(worker)
            else:
                asked.remove(worker)
                clocks.ask(worker, pushed[worker] == steps)
        ready |= {worker for worker, _ in clocks.answers()}
    assert clocks.passed(steps) and ready == left
    assert clocks.meeting(steps) == (Meeting.ALL if len(left) == workers else Meeting.PARTIAL)
    record = [(one.kind, one.worker, one.clock) for one in clocks.record]
    assert furthest_ahead(record, workers) <= ahead
    assert clocks.pushes == sum(pushed)


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
    assert ready == set(range(workers)) and clocks.passed(steps) and clocks.meeting(steps) == Meeting.ALL
    record = [(one.kind, one.worker, one.clock) for one in clocks.record]
    assert furthest_ahead(record, workers) <= ahead
    assert behind(record, workers) <= (2 * ahead + 1) * (workers - 1)
    assert all(met(record, clock, workers) for clock in meetings)
    at_once = meetings - set(together)
    assert set(together) <= meetings and any(clock >= wanted for clock in meetings)
    assert at_once == set(range(1, steps + 1)) - set(together) if ahead == 0 else len(at_once) <= 1
