"""Torch runs the passes that it is given, and its messages never make two ranks wait for each other."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardyard.strategies import torch_version
from shardyard.strategies.layout import Layout
from shardyard.strategies.pipeline_parallel.schedule import planned_order
from shardyard.strategies.pipeline_parallel.schedule_order import COMPUTES, Action
from shardyard.strategies.pipeline_parallel.zero_bubble import HANDCRAFTED, passes


@settings(deadline=None)
@given(schedule=st.sampled_from(HANDCRAFTED), p=st.integers(2, 6), more=st.integers(0, 6))
def test_passes_keep_their_order_and_single_messages_meet(schedule: str, p: int, more: int) -> None:
    m = 2 * p - 1 + more
    order = planned_order(Layout.model_validate({"pipeline": p, "schedule": schedule}), m)
    given_passes = [[action for action in actions if action.kind in COMPUTES] for actions in order]
    assert given_passes == [list(actions) for actions in passes(schedule, p, m)]
    assert _left(order) == []


def test_two_ranks_that_both_send_first_are_found() -> None:
    sends = ((Action("SEND_F", 0, 0), Action("RECV_B", 0, 0)), (Action("SEND_B", 1, 0), Action("RECV_F", 1, 0)))
    assert _left(sends) == ["0SEND_F0", "1SEND_B0"]


def _left(order: Sequence[Sequence[Action]]) -> list[str]:
    """What ranks wait at forever if each runs its messages one after the other, and a send ends when it is received."""
    waiting = [[action for action in actions if action.kind not in COMPUTES] for actions in order]
    progress = True
    while progress:
        progress = False
        for rank, actions in enumerate(waiting):
            if not actions or not actions[0].kind.startswith("SEND"):
                continue
            kind, stage, microbatch = actions[0].kind, actions[0].stage, actions[0].microbatch
            other = waiting[rank + (1 if kind == "SEND_F" else -1)]
            receive = (
                Action("RECV_F", stage + 1, microbatch) if kind == "SEND_F" else Action("RECV_B", stage - 1, microbatch)
            )
            if other and other[0] == receive:
                actions.pop(0)
                other.pop(0)
                progress = True
    return [str(actions[0]) for actions in waiting if actions]


def test_another_torch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_version, "TRIED", ("1.0.",))
    with pytest.raises(RuntimeError, match="_PipelineScheduleRuntime is private to torch"):
        planned_order(Layout(pipeline=2, schedule="zb-h1"), 4)
