"""A profile is asked of its rank until the rank answers, and given up when the gang ends."""

import asyncio
from typing import Any

import pytest

from shardyard.workers.messages.artifact import Artifact
from shardyard.workers.messages.profile_request import Profile
from shardyard.workers.rank.profiler import Outcome
from shardyard.workers.supervisor import profile_orders
from shardyard.workers.supervisor.gang_state import Phase, ProfilesState, RankState
from shardyard.workers.supervisor.orders import OrderQueue
from shardyard.workers.supervisor.profile_orders import ProfileOrders
from shardyard.workers.supervisor.ranks.members import Member

ORDER = Profile("p1", "cpu", 1, 5, "/files", 1000)
DONE = Outcome("5 s of process 7", Artifact(name="profiles/x", bytes=1, sha256="a" * 64))


class Handle:
    """An actor that gives these answers, one after the other, and ends the gang with the last."""

    def __init__(self, answers: list[Any], phases: list[Phase]) -> None:
        self.answers, self.phases = answers, phases

    async def profile(self, order: Profile) -> Any:
        answer = self.answers.pop(0)
        if not self.answers:
            self.phases.append("ending")
        if isinstance(answer, Exception):
            raise answer
        return answer


async def settled() -> None:
    await asyncio.sleep(0)


def orders(answers: list[Any], phase: Phase = "training") -> ProfileOrders:
    phases: list[Phase] = [phase]
    member: Any = Member.from_state(RankState(1))
    member.handle = Handle(answers, phases) if answers else None
    queue: OrderQueue[Profile] = OrderQueue(settled)
    return ProfileOrders(queue, [member, member], lambda: phases[-1])


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile_orders, "POLL_S", 0.0)


async def test_it_is_asked_again_after_a_lost_actor_and_without_a_process() -> None:
    assert await orders([TimeoutError("no answer"), None, DONE]).carry_out(ORDER) == DONE


async def test_a_gang_that_ends_has_no_outcome() -> None:
    assert await orders([None]).carry_out(ORDER) is None
    assert await orders([DONE], "ending").carry_out(ORDER) is None


async def test_a_rank_that_never_has_a_process_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile_orders, "PATIENCE_S", 0.0)
    given_up = await orders([]).carry_out(ORDER)
    assert given_up is not None and given_up.file is None and "its actor is being replaced" in given_up.message
    failed = await orders([TimeoutError("no answer"), DONE]).carry_out(ORDER)
    assert failed is not None and "no answer" in failed.message
    queued = orders([TimeoutError("no answer"), DONE])
    await queued.queue.add(ORDER.id, ORDER)
    assert await queued.carry_out(ORDER) == DONE, "profiles of one rank are taken one after the other, which takes time"


async def test_a_successor_goes_on_with_what_is_pending() -> None:
    before = orders([DONE])
    await before.queue.add(ORDER.id, ORDER)
    state = before.to_state()
    after = orders([DONE])
    after.resume(ProfilesState(state.pending, ["p0"]))
    assert after.to_state() == ProfilesState([ORDER], ["p0"])
