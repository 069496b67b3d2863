"""A command is sent to one actor only, and is not repeated where it may have run."""

import asyncio
from typing import Any

import pytest

from shardyard.workers.messages.exec_request import Exec, ExecEnd
from shardyard.workers.supervisor import exec_orders
from shardyard.workers.supervisor.exec_orders import ExecOrders
from shardyard.workers.supervisor.gang_state import ExecsState, PendingExec, Phase, RankState
from shardyard.workers.supervisor.orders import OrderQueue
from shardyard.workers.supervisor.ranks.members import Member

ORDER = Exec("x1", 1, ("ls",), 5)
DONE = ExecEnd("exit status 0", 0)


class Handle:
    """An actor that gives these answers, one after the other. An exception is that of an actor that dies: another one replaces it."""

    def __init__(self, answers: list[Any], member: Any, seen: list[str]) -> None:
        self.answers, self.member, self.seen = answers, member, seen

    async def execute(self, order: Exec) -> Any:
        self.seen.append(self.member.name)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            if not isinstance(answer, TimeoutError):
                self.member.name = "another"
            raise answer
        return answer


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exec_orders, "POLL_S", 0.0)


def orders(answers: list[Any], phase: Phase = "training") -> tuple[ExecOrders, list[str]]:
    seen: list[str] = []
    member: Any = Member.from_state(RankState(1, name="first"))
    member.handle = Handle(answers, member, seen) if answers else None

    async def settled() -> None:
        await asyncio.sleep(0)
        seen.append("journal")

    queue: OrderQueue[PendingExec] = OrderQueue(settled)
    return ExecOrders(queue, [member, member], lambda: phase), seen


async def test_the_actor_is_in_the_journal_before_it_is_asked_and_asked_again_if_it_had_no_process() -> None:
    mine, seen = orders([None, DONE])
    assert await mine.carry_out(PendingExec(ORDER)) == DONE
    assert seen == ["journal", "first", "journal", "first"]


async def test_the_end_follows_the_last_of_the_output(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, _ = orders([ExecEnd("exit status 0", 0, last=7)])
    running = asyncio.create_task(mine.carry_out(PendingExec(ORDER)))
    for pulled in range(7):
        mine.members[1].pulled = pulled
        await asyncio.sleep(0)
        assert not running.done()
    mine.members[1].pulled = 7
    assert (await running) == ExecEnd("exit status 0", 0, last=7)
    monkeypatch.setattr(exec_orders, "OUTPUT_S", 0.0)
    mine, _ = orders([ExecEnd("exit status 0", 0, last=7)])
    assert await mine.carry_out(PendingExec(ORDER)) is not None, "an output that is lost does not hold it"


async def test_an_actor_that_died_is_not_replaced_by_another() -> None:
    mine, seen = orders([RuntimeError("died"), DONE])
    end = await mine.carry_out(PendingExec(ORDER))
    assert end is not None and end.status is None and "died before" in end.message
    assert seen == ["journal", "first"]


async def test_an_actor_that_does_not_answer_is_not_asked_again() -> None:
    mine, seen = orders([TimeoutError("late"), DONE])
    end = await mine.carry_out(PendingExec(ORDER))
    assert end is not None and end.status is None and seen == ["journal", "first"]


async def test_a_gang_that_ends_and_a_rank_without_a_process_have_no_status(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, _ = orders([DONE], "ending")
    assert await mine.carry_out(PendingExec(ORDER)) is None
    monkeypatch.setattr(exec_orders, "PATIENCE_S", 0.0)
    mine, _ = orders([])
    end = await mine.carry_out(PendingExec(ORDER))
    assert end is not None and "no process" in end.message


async def test_a_successor_asks_the_same_actor() -> None:
    before, _ = orders([DONE])
    pending = PendingExec(ORDER, "first")
    await before.queue.add(ORDER.id, pending)
    after, seen = orders([DONE])
    after.resume(ExecsState(before.to_state().pending, ["x0"]))
    assert after.to_state() == ExecsState([pending], ["x0"])
    assert await after.carry_out(after.queue.pending[ORDER.id]) == DONE and seen == ["first"]
