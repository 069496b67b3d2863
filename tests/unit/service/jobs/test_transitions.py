from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from shardyard.service.jobs.transitions import route
from shardyard.service.states import FINAL, HOLDING, MOVES, State

states = st.sampled_from(list(State))


@given(states, states)
def test_a_route_is_made_of_moves_and_ends_where_it_should(before: State, to: State) -> None:
    way = route(before, to)
    assert all(after in MOVES[first] for first, after in pairwise([before, *way]))
    assert not way or way[-1] == to
    assert not (before in FINAL and way)


@given(st.sampled_from(sorted(HOLDING)), st.sampled_from([State.SUCCEEDED, State.FAILED]))
def test_a_gangs_end_is_never_lost(before: State, end: State) -> None:
    assert route(before, end)[-1] == end


def test_old_news_moves_nothing() -> None:
    assert route(State.RUNNING, State.STARTING) == []
    assert route(State.CANCELLING, State.RUNNING) == []
    assert route(State.PLACING, State.RUNNING) == [State.STARTING, State.RUNNING]
