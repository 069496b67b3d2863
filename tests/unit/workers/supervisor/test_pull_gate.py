import asyncio

from harness.patience import PATIENCE_S

from shardyard.workers.messages.event_buffer import Spool
from shardyard.workers.supervisor.pull_gate import PullGate


async def test_a_gate_is_open_while_there_is_room() -> None:
    spool = Spool(200)
    gate = PullGate(spool, 1)
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
    gate = PullGate(spool, 1)
    waiting = asyncio.ensure_future(gate.opens(PATIENCE_S))
    await asyncio.sleep(0)
    with gate.held_open():
        assert await waiting and await gate.opens(0.0)
    assert not await gate.opens(0.01)


async def test_steps_wait_for_the_slowest_rank_that_is_followed() -> None:
    gate = PullGate(Spool(200), 1 << 20)
    assert gate.most_steps == 16
    with gate.following(0):
        with gate.following(1):
            assert [await gate.passes(0, 0.0) for _ in range(17)] == [True] * 16 + [False]
            waiting = asyncio.ensure_future(gate.passes(0, PATIENCE_S))
            await asyncio.sleep(0)
            assert not waiting.done() and await gate.passes(1, 0.0)
            assert await waiting and not await gate.passes(0, 0.0)
            assert [await gate.passes(1, 0.0) for _ in range(16)] == [True] * 16
            assert [await gate.passes(0, 0.0) for _ in range(17)] == [True] * 16 + [False]
            waiting = asyncio.ensure_future(gate.passes(0, PATIENCE_S))
            await asyncio.sleep(0)
        assert await waiting, "a rank that has ended is not waited for"
        assert await gate.passes(0, 0.0)
        with gate.following(1):
            assert not await gate.passes(0, 0.0)
