"""The order of a trace and the wish for it."""

from itertools import pairwise

import pytest

from shardyard.workers.messages.trace_request import Trace, Wish, slowest_rank, traced_ranks, vote


def test_an_order_comes_back_from_json_and_has_its_bounds() -> None:
    assert Trace.from_json(Trace("a", 3).to_json()) == Trace("a", 3)
    for steps in (0, 21):
        with pytest.raises(ValueError, match="1 to 20 steps"):
            Trace("a", steps)
    with pytest.raises(TypeError):
        Trace.from_json({"id": "a", "steps": 3, "ranks": 1})


def test_many_ranks_are_traced_in_part() -> None:
    assert traced_ranks(64) == list(range(64))
    some = traced_ranks(1000)
    assert len(set(some)) == 64 and some[0] == 0 and max(some) < 1000
    gaps = {after - before for before, after in pairwise(some)}
    assert gaps <= {15, 16}


def test_a_wish_is_taken_once_though_it_comes_twice() -> None:
    wish = Wish()
    assert wish.after(4) is None
    wish.order(Trace("a", 3))
    wish.order(Trace("a", 3))
    assert wish.after(4) == Trace("a", 3)
    wish.take(Trace("a", 3))
    wish.order(Trace("a", 3))
    assert wish.after(5) is None
    wish.order(Trace("b", 2), first=10)
    assert [wish.after(step) is not None for step in (8, 9, 10)] == [False, True, True]


def test_what_is_heard_while_a_trace_is_taken_stays_wished_for() -> None:
    wish = Wish()
    wish.order(Trace("a", 3))
    offered = wish.after(4)
    wish.order(Trace("b", 1))
    assert offered is not None
    wish.take(offered)
    assert wish.after(4) == Trace("b", 1)


def test_ranks_agree_on_one_trace_alone() -> None:
    a, b = Trace("a", 1), Trace("b", 1)
    assert vote(None) == 0.0 < vote(a) != vote(b) and vote(a) == int(vote(a)) < 2**33
    assert vote(a) + vote(b) not in (2 * vote(a), 2 * vote(b))


def test_the_slowest_rank_worked_longest_whoever_waited() -> None:
    sums = {"forward": 1.0, "send": 0.0, "receive": 0.0, "collective": 0.0}
    events = [
        {"rank": 0, "seconds": 1.5, "sums": sums | {"collective": 0.5}},
        {"rank": 1, "seconds": 1.5, "sums": sums | {"receive": 0.1, "send": 0.1}},
        {"rank": 0, "seconds": 1.4, "sums": sums | {"collective": 0.4}},
        {"rank": 1, "seconds": 1.4, "sums": sums | {"collective": 0.1}},
    ]
    assert slowest_rank(events) == 1 and slowest_rank([]) is None
