import asyncio

import pytest
from harness.patience import PATIENCE_S

from shardyard.workers.messages.event_buffer import Event, Spool
from shardyard.workers.supervisor.pull_gate import PullGate, steps_of_a_turn, turns


async def test_a_gate_is_open_while_there_is_room() -> None:
    spool = Spool(200)
    gate = PullGate(spool)
    assert await gate.opens(0.0)
    spool.add("log", {"lines": ["x" * 400]})
    assert not await gate.opens(0.01)
    waiting = asyncio.ensure_future(gate.opens(PATIENCE_S))
    await asyncio.sleep(0)
    spool.take(spool.last)
    assert await waiting


async def test_a_gate_that_is_held_open_lets_those_pass_that_wait_for_room() -> None:
    spool = Spool(200)
    spool.add("log", {"lines": ["x" * 400]})
    gate = PullGate(spool)
    waiting = asyncio.ensure_future(gate.opens(PATIENCE_S))
    await asyncio.sleep(0)
    with gate.held_open():
        assert await waiting and await gate.opens(0.0)
    assert not await gate.opens(0.01)


def test_the_steps_of_a_turn_are_bounded_and_all_events_keep_their_order() -> None:
    kinds = ["log", *["step"] * 3, "log", "step", "step", "checkpoint"]
    events: list[Event] = [{"seq": at, "ts": 1.0, "kind": kind, "data": {}} for at, kind in enumerate(kinds, 1)]
    assert [[event["seq"] for event in turn] for turn in turns(events, 2)] == [[1, 2, 3], [4, 5, 6], [7, 8]]
    assert list(turns(events, 5)) == [events] and list(turns([], 2)) == [[]]


@pytest.mark.parametrize(("world_size", "steps"), [(1, 16384), (64, 256), (1 << 20, 16)])
def test_many_ranks_have_short_turns(world_size: int, steps: int) -> None:
    assert steps_of_a_turn(world_size) == steps
