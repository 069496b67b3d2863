from shardyard.workers.messages.trace_request import Trace
from shardyard.workers.trainer.pending_trace import PendingTrace, number_of

A, B = Trace("a", 3), Trace("b", 2)


def begun(pending: PendingTrace, step: int) -> Trace | None:
    """What begins after `step` in a world of one rank."""
    return pending.begin(pending.vote(step), 1)


def test_a_trace_begins_once_however_often_it_is_ordered() -> None:
    pending = PendingTrace()
    assert pending.vote(1) == 0.0
    pending.order(A)
    pending.order(A)
    assert begun(pending, 4) == A
    pending.order(A)
    pending.end()
    assert begun(pending, 5) is None


def test_a_trace_begins_at_its_first_step_and_not_while_another_runs() -> None:
    pending = PendingTrace()
    pending.order(B, first=10)
    assert [pending.vote(step) != 0.0 for step in (8, 9, 10)] == [False, True, True]
    assert begun(pending, 9) == B
    pending.order(A)
    assert begun(pending, 10) is None
    pending.end()
    assert begun(pending, 11) == A


def test_an_order_that_comes_after_the_vote_stays_pending() -> None:
    pending = PendingTrace()
    pending.order(A)
    votes = pending.vote(4)
    pending.order(B)
    assert pending.begin(votes, 1) == A
    pending.end()
    assert begun(pending, 5) == B


def test_ranks_agree_on_one_trace_alone() -> None:
    pending = PendingTrace()
    pending.order(A)
    mine, other = pending.vote(4), number_of(B)
    assert number_of(None) == 0.0 < mine != other and mine == int(mine) < 2**33
    assert [pending.begin(votes, 2) for votes in (mine, mine + other, 2 * other)] == [None, None, None]
    assert pending.begin(2 * mine, 2) == A
