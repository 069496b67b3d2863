from dataclasses import replace

import pytest

from shardyard.service.policies.retry import (
    FREE,
    INFRASTRUCTURE,
    OF_NO_NODE,
    PROGRESS_STEPS,
    Again,
    Backoff,
    Enough,
    Fault,
    Spent,
    decide,
)
from shardyard.workers.program import cache_disk
from shardyard.workers.program.build_process import NOT_PREPARED

BACKOFF = Backoff(4.0, 100.0)
FRESH = Spent(restarts=0, max_restarts=3, retries=0, max_retries=0, setbacks=0)


def lives(spent: Spent, *faults: Fault) -> Again | Enough:
    """A job that meets these faults one after the other."""
    verdict: Again | Enough = Again(0.0, spent, "")
    for fault in faults:
        assert isinstance(verdict, Again)
        verdict = decide("job-a", verdict.spent, fault, BACKOFF)
    return verdict


@pytest.mark.parametrize("reason", sorted(INFRASTRUCTURE - FREE))
def test_faults_of_machines_use_restarts_up(reason: str) -> None:
    lost = Fault(reason, 0)
    third = lives(FRESH, lost, lost, lost)
    assert isinstance(third, Again) and (third.spent.restarts, third.spent.retries) == (3, 0)
    assert third.note == f"restart 3 of 3 in {third.wait_s:.1f} s"
    assert lives(FRESH, *[lost] * 4) == Enough(reason, "3 of 3 restarts are used up (policy.max_restarts)")


@pytest.mark.parametrize("reason", sorted(FREE))
def test_faults_of_the_whole_cluster_cost_nothing_but_time(reason: str) -> None:
    none = replace(FRESH, max_restarts=0)
    verdict = lives(none, *[Fault(reason, 0)] * 20)
    assert isinstance(verdict, Again)
    assert verdict.spent == replace(none, setbacks=20)
    assert 50 <= verdict.wait_s <= 100


def test_exceptions_are_not_retried_unless_the_policy_says_so() -> None:
    raised = Fault("exception", 0)
    assert lives(FRESH, raised) == Enough("exception", None)
    assert lives(FRESH, Fault("exception", 0, earlier=1)) == Enough("exception", None)
    decision = lives(replace(FRESH, max_retries=1), raised)
    assert isinstance(decision, Again) and (decision.spent.restarts, decision.spent.retries) == (0, 1)
    assert lives(replace(FRESH, max_retries=1), raised, raised) == Enough(
        "exception", "1 of 1 retries are used up (policy.max_retries)"
    )


@pytest.mark.parametrize("reason", [cache_disk.FULL, cache_disk.FAILED, NOT_PREPARED])
def test_what_a_node_lacks_for_an_environment_is_a_fault_of_machines(reason: str) -> None:
    decision = lives(FRESH, Fault(reason, 0))
    assert isinstance(decision, Again) and (decision.spent.restarts, decision.spent.retries) == (1, 0)
    assert (reason in OF_NO_NODE) == (reason == NOT_PREPARED), "a disk is its node's"


@pytest.mark.parametrize("reason", ["environment_not_built", "secret_unavailable"])
def test_what_is_missing_for_every_attempt_is_not_tried_again(reason: str) -> None:
    assert lives(replace(FRESH, max_retries=9), Fault(reason, 0)) == Enough(reason)


def test_an_exception_that_came_before_is_the_last() -> None:
    verdict = lives(replace(FRESH, max_retries=9), Fault("exception", 0), Fault("exception", 50, earlier=1))
    assert isinstance(verdict, Enough) and verdict.reason == "exception_repeated"
    assert verdict.note is not None and "attempt 1" in verdict.note


def test_what_is_unknown_is_no_fault_of_machines() -> None:
    assert isinstance(lives(FRESH, Fault("dancing", 0)), Enough)


def test_waits_double_until_the_job_gets_on() -> None:
    much = replace(FRESH, max_restarts=100)
    stuck = Fault("rank_lost", PROGRESS_STEPS - 1)
    waits = []
    for setbacks in range(1, 12):
        verdict = lives(much, *[stuck] * setbacks)
        assert isinstance(verdict, Again)
        waits.append(verdict.wait_s)
    for i, wait in enumerate(waits):
        most = min(100.0, 4.0 * 2**i)
        assert most / 2 <= wait <= most
    got_on = lives(much, *[stuck] * 11, Fault("rank_lost", PROGRESS_STEPS))
    assert isinstance(got_on, Again)
    assert got_on.wait_s == waits[0] and got_on.spent.restarts == 12


def test_no_wait_is_longer_than_allowed() -> None:
    for setbacks in (*range(1, 80), 10**9):
        assert 2.0 <= BACKOFF.wait_s("job-a", setbacks) <= 100.0


def test_jobs_that_were_lost_together_come_back_apart() -> None:
    waits = [BACKOFF.wait_s(f"job-{i}", 1) for i in range(200)]
    assert len({round(wait, 2) for wait in waits}) > 100
    assert BACKOFF.wait_s("job-1", 1) == waits[1]
