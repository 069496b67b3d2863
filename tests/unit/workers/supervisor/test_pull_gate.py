import asyncio

from harness.patience import PATIENCE_S

from shardyard.workers.messages.event_buffer import Spool
from shardyard.workers.supervisor.pull_gate import PullGate


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
