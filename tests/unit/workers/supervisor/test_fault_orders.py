"""To which actor a fault is sent, and what is reported. With real ranks: tests/integration/workers/supervisor/test_fault_orders.py."""

from typing import Any

from shardyard.workers.messages.fault_request import Fault, Kind
from shardyard.workers.messages.gang_spec import GangSpec
from shardyard.workers.supervisor.fault_orders import FaultOrders
from shardyard.workers.supervisor.gang_state import PendingFault
from shardyard.workers.supervisor.orders import OrderQueue
from shardyard.workers.supervisor.ranks.handles import RankHandle
from shardyard.workers.supervisor.ranks.members import Member


class Rank:
    """An actor as far as a fault reaches it: it gives these answers, of which an exception is raised."""

    def __init__(self, *answers: str | Exception | None) -> None:
        self.inject: Any = self
        self.answers = list(answers)

    async def remote(self, fault: dict[str, Any], checkpoints: str | None) -> str | None:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def orders(rank: Rank, written: list[str], pending: PendingFault, phase: Any = "training") -> FaultOrders:
    """Of a gang of one rank; `written` gets the actor that stands in the journal at each write."""

    async def settled() -> None:
        written.append(pending.at)

    queue: OrderQueue[PendingFault] = OrderQueue(settled)
    member = Member(0, name="actor", handle=RankHandle(rank))
    return FaultOrders(GangSpec("shardyard-a-1", {}, 1), queue, [member], lambda: phase)


def pending(kind: Kind = "kill-rank", at: str = "") -> PendingFault:
    return PendingFault(Fault("f", kind, 0), at)


async def test_the_actor_is_in_the_journal_before_it_is_asked() -> None:
    fault, written = pending(), list[str]()
    assert await orders(Rank("SIGKILL"), written, fault).carry_out(fault) == "SIGKILL"
    assert written == ["actor"]


async def test_what_was_not_done_is_tried_again() -> None:
    fault, written = pending(), list[str]()
    assert await orders(Rank(None, "SIGKILL"), written, fault).carry_out(fault) == "SIGKILL"
    assert written == ["actor", "actor"]


async def test_a_fault_that_was_sent_to_an_actor_that_is_gone_is_not_sent_to_another() -> None:
    fault = pending(at="another actor")
    done = await orders(Rank(), [], fault).carry_out(fault)
    assert done == "the rank's actor died before it could confirm the fault"


async def test_an_actor_that_dies_of_it_has_done_it() -> None:
    fault = pending("kill-actor")
    assert await orders(Rank(OSError("gone")), [], fault).carry_out(fault) == "SIGKILL to the actor of rank 0"


async def test_a_gang_that_ends_is_not_harmed() -> None:
    fault, written = pending(), list[str]()
    assert await orders(Rank(), written, fault, "ending").carry_out(fault) is None and not written
