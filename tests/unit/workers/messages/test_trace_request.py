"""The request for a trace."""

from itertools import pairwise

import pytest

from shardyard.workers.messages.trace_request import Trace, slowest_rank, traced_ranks


def test_an_order_comes_back_from_json_and_has_its_bounds() -> None:
    assert Trace.from_json(Trace("a", 3).to_json()) == Trace("a", 3)
    for steps in (0, 21):
        with pytest.raises(ValueError, match="1 to 20 steps"):
            Trace("a", steps)
    with pytest.raises(ValueError, match="ranks"):
        Trace.from_json({"id": "a", "steps": 3, "ranks": 1})


def test_many_ranks_are_traced_in_part() -> None:
    assert traced_ranks(64) == list(range(64))
    some = traced_ranks(1000)
    assert len(set(some)) == 64 and some[0] == 0 and max(some) < 1000
    gaps = {after - before for before, after in pairwise(some)}
    assert gaps <= {15, 16}


def test_the_slowest_rank_worked_longest_whatever_waited() -> None:
    sums = {"forward": 1.0, "send": 0.0, "receive": 0.0, "collective": 0.0}
    events = [
        {"rank": 0, "seconds": 1.5, "sums": sums | {"collective": 0.5}},
        {"rank": 1, "seconds": 1.5, "sums": sums | {"receive": 0.1, "send": 0.1}},
        {"rank": 0, "seconds": 1.4, "sums": sums | {"collective": 0.4}},
        {"rank": 1, "seconds": 1.4, "sums": sums | {"collective": 0.1}},
    ]
    assert slowest_rank(events) == 1 and slowest_rank([]) is None
