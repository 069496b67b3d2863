import asyncio
import contextlib
import copy
from types import SimpleNamespace
from typing import Any

import pytest
from harness.patience import PATIENCE_S

from shardyard.workers.messages.event_buffer import Event, Spool
from shardyard.workers.messages.gang_spec import GangSpec
from shardyard.workers.supervisor.event_pump import PumpedEvent
from shardyard.workers.supervisor.gang import Gang
from shardyard.workers.supervisor.gang_secrets import GangSecrets
from shardyard.workers.supervisor.journal.journal import Journal
from shardyard.workers.supervisor.pull_gate import PullGate, steps_of_a_turn, turns
from shardyard.workers.supervisor.ranks.handles import RankHandle
from shardyard.workers.supervisor.ranks.members import Member


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
    events = [event(at, kind) for at, kind in enumerate(kinds, 1)]
    assert [[one["seq"] for one in turn] for turn in turns(events, 2)] == [[1, 2, 3], [4, 5, 6], [7, 8]]
    assert list(turns(events, 5)) == [events] and list(turns([], 2)) == [[]]


@pytest.mark.parametrize(("world_size", "steps"), [(1, 16384), (64, 256), (1 << 20, 16)])
def test_many_ranks_have_short_turns(world_size: int, steps: int) -> None:
    assert steps_of_a_turn(world_size) == steps


def event(number: int, kind: str, **data: Any) -> Event:
    return {"seq": number, "ts": 1.0, "kind": kind, "data": data}


class Backlog:
    """An actor that has these batches of events. It does not answer heartbeats, and counts them."""

    def __init__(self, *batches: list[Event]) -> None:
        self.batches, self.beats = copy.deepcopy(list(batches)), 0
        self.pull, self.heartbeat = SimpleNamespace(remote=self.give), SimpleNamespace(remote=self.beat)

    async def give(self, after: int, wait_s: float) -> list[Event]:
        return self.batches.pop(0)

    async def beat(self) -> None:
        self.beats += 1
        raise TimeoutError("no answer")


def steps(*numbers: int, again: int = 0) -> list[Event]:
    """The first `again` of these steps are reported once more."""
    return [
        event(at, "step", step=step, step_s=0.1, loss=2.0, **({"again": True} if at <= again else {}))
        for at, step in enumerate(numbers, 1)
    ]


def two_ranks(lease_s: float = 30.0) -> Gang:
    """With turns of 16 steps, and nothing is written."""

    async def settled(gather_s: float = 0.0) -> None: ...

    spool = Spool(1 << 20)
    gang = Gang(GangSpec("gang", {}, 2, lease_s=lease_s), Journal("gang", spool, bytes), spool, GangSecrets(False))
    gang.journal.settled = settled  # type: ignore[method-assign]
    gang.pump._steps_of_a_turn = 16
    return gang


async def follow(gang: Gang, member: Member) -> None:
    """Each event is applied to its member as `repair.py` does."""
    async with contextlib.aclosing(gang.pump.pull_rank(gang.members, member, None)) as taken:
        async for one in taken:
            assert isinstance(one, PumpedEvent)
            member.pulled, member.exited = one.number, one.exited
            member.done = member.done or one.done


async def pull_all(gang: Gang) -> None:
    for member in gang.members:
        member.reader = asyncio.create_task(follow(gang, member))
    assert await gang.pump.drain(gang.members, PATIENCE_S) == []


async def test_ranks_with_a_backlog_take_turns_and_keep_their_leases() -> None:
    """After a long absence of the dispatcher each rank has thousands of steps. The journal has those that some ranks have yet to report."""
    open_steps: list[int] = []

    async def settled(gather_s: float = 0.0) -> None:
        open_steps.append(len(gang.merger.to_state().open_steps))
        await asyncio.sleep(0.01)

    gang = two_ranks(lease_s=0.03)
    gang.journal.settled = settled  # type: ignore[method-assign]
    actors = [Backlog([*steps(*range(1, 101)), event(101, "exit", status=-9, generation=1)]) for _ in range(2)]
    gang.members += [Member(rank, handle=RankHandle(actor)) for rank, actor in enumerate(actors)]
    await pull_all(gang)
    assert max(open_steps) <= 16 and all(actor.beats >= 1 for actor in actors)
    emitted = [one["data"]["step"] for one in gang.spool.newer(0) if one["kind"] == "step"]
    assert emitted == list(range(1, 101)) and gang.merger.to_state().open_steps == {}


@pytest.mark.parametrize("other", ["is done", "never steps", "was far ahead when the supervisor began"])
async def test_no_rank_waits_for_the_steps_of_another_one(other: str) -> None:
    """Rank 0 reports steps again after a restore, and may then be hundreds of events behind the others."""
    gang = two_ranks()
    if other.startswith("was"):
        for ahead in steps(*range(51, 151)):
            gang.merger.step(1, ahead)
    theirs = steps(*range(51, 151)) if other == "is done" else []
    replayed = steps(*range(1, 51), *range(51, 151), again=50)
    both, done = asyncio.Event(), asyncio.Event()

    class First(Backlog):
        async def give(self, after: int, wait_s: float) -> list[Event]:
            await both.wait()
            if gang.members[0].done:
                done.set()
            return await super().give(after, wait_s)

    class Second(Backlog):
        """Its trainer exits when all others are done."""

        async def give(self, after: int, wait_s: float) -> list[Event]:
            both.set()
            if gang.members[1].done:
                await done.wait()
            return await super().give(after, wait_s)

    actors = (First([*replayed, event(151, "done")]), Second([*theirs, event(101, "done")]))
    for actor, last in zip(actors, (152, 102), strict=True):
        actor.batches.append([event(last, "exit", status=0, generation=1)])
    gang.members += [Member(rank, handle=RankHandle(actor)) for rank, actor in enumerate(actors)]
    await asyncio.wait_for(pull_all(gang), PATIENCE_S)
    assert [member.done for member in gang.members] == [True, True]
    emitted = [one["data"]["step"] for one in gang.spool.newer(0) if one["kind"] == "step"]
    assert emitted == list(range(1, 151))


class Buffered:
    """An actor with the buffer of a real one, full of log lines. All `asked` answer their first pulls together."""

    def __init__(self, lines: int, size: int, asked: asyncio.Barrier) -> None:
        self.buffer, self.pulls, self.asked = Spool(1 << 30), 0, asked
        for first in range(1, lines + 1):
            self.buffer.add("log", {"rank": 0, "stream": "stdout", "first": first, "lines": ["x" * size]})
        self.buffer.add("exit", {"status": 0, "generation": 1})
        self.pull, self.heartbeat = SimpleNamespace(remote=self.give), SimpleNamespace(remote=self.beat)

    async def give(self, after: int, wait_s: float) -> list[Event]:
        self.pulls += 1
        if self.pulls == 1:
            await self.asked.wait()
        return self.buffer.take(after)

    async def beat(self) -> None: ...


async def test_ranks_whose_logs_waited_do_not_fill_the_spool_far_beyond_its_bound() -> None:
    """An answer has up to 1 MB, all ranks have one on its way when the spool is full, and then they wait for the same room."""
    spool, kept, asked = Spool(4_000_000), list[int](), asyncio.Barrier(50)
    gang = Gang(GangSpec("gang", {}, 50), Journal("gang", spool, bytes), spool, GangSecrets(False))

    async def settled(gather_s: float = 0.0) -> None:
        kept.append(spool._bytes)
        await asyncio.sleep(0)

    gang.journal.settled = settled  # type: ignore[method-assign]
    actors = [Buffered(16, 64_000, asked) for _ in range(50)]
    gang.members += [Member(rank, handle=RankHandle(actor), done=True) for rank, actor in enumerate(actors)]
    readers = [asyncio.create_task(follow(gang, member)) for member in gang.members]
    async with asyncio.timeout(PATIENCE_S):
        await spool.wait(0, PATIENCE_S)
        await asyncio.sleep(0.1)
        assert spool.full
        before = sum(actor.pulls for actor in actors)
        taken = spool.take(0)
        taken += spool.take(taken[-1]["seq"])
        assert not spool.full and spool.half_full
        await spool.wait(spool.last, PATIENCE_S)
        await asyncio.sleep(0.1)
        assert sum(actor.pulls for actor in actors) < before + 10, "the others would find no room"
        while (batch := spool.take(taken[-1]["seq"])) or not all(reader.done() for reader in readers):
            taken += batch
            await asyncio.sleep(0.001)
    assert max(kept) < 2 * spool.limit_bytes
    assert sorted(one["data"]["first"] for one in taken) == sorted([*range(1, 17)] * 50)
