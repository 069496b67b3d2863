"""The table of states: what a job may become."""

from shardyard.service.states import FINAL, HOLDING, MOVES, State


def test_final_states_are_those_without_a_way_out() -> None:
    assert {State.SUCCEEDED, State.FAILED, State.CANCELLED} == FINAL
    assert not FINAL & HOLDING


def test_from_every_state_an_end_can_be_reached() -> None:
    for state in State:
        reached, before = {state}, set[State]()
        while reached != before:
            before, reached = reached, reached.union(*(MOVES[each] for each in reached))
        assert reached & FINAL, state


def test_every_state_that_holds_devices_can_be_cancelled() -> None:
    for state in HOLDING - {State.CANCELLING}:
        assert State.CANCELLING in MOVES[state], state
