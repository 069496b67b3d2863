"""The supervisor's part in faults that somebody asked for: each is struck once and told once, though its order may come twice.

Before it strikes it writes in the journal what, and at which actor; a supervisor that dies of it or amid it leaves a successor that asks
that very actor again, which knows what it has done (`fault_injector.py`), and nobody else. A fault waits until the gang
trains. One that finds
no such moment before the gang's end is not struck; the service says so.
"""

import asyncio
import os
import signal
from dataclasses import dataclass, field
from typing import Final, Protocol, Self

from ..messages.fault_request import Fault
from .event_merger import Story
from .gang_state import FaultsState, PendingFault
from .hang_watchdog import ANSWER_S, within
from .journal.journal import Journal
from .ranks.members import Member
from .ranks.placement_group import Order

#: So often a gang is looked at that does not train just now.
LOOK_S: Final = 0.1


@dataclass
class Ordered:
    """A fault that is not told yet, and the name of the actor at which it strikes; empty: of none yet."""

    fault: Fault
    at: str = ""


@dataclass
class Docket:
    """What a restarted supervisor must know: the faults that are still to be told, and which have been."""

    open: dict[str, Ordered] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)

    def to_state(self) -> FaultsState:
        return FaultsState([PendingFault(one.fault, one.at) for one in self.open.values()], sorted(self.told))

    @classmethod
    def from_state(cls, state: FaultsState) -> Self:
        return cls({one.fault.id: Ordered(one.fault, one.at) for one in state.pending}, set(state.reported))


class Gang(Protocol):
    """What is needed of the supervisor."""

    order: Order
    journal: Journal
    story: Story
    members: list[Member]
    docket: Docket

    @property
    def phase(self) -> str: ...


class Faults:
    """Takes orders, and carries each out in a task of its own."""

    def __init__(self, gang: Gang) -> None:
        self.gang = gang
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def order(self, fault: Fault) -> None:
        """Returns when the order cannot be lost any more. Harmless when it comes again."""
        if fault.id not in self.gang.docket.told:
            self.gang.docket.open.setdefault(fault.id, Ordered(fault))
            await self.gang.journal.settled()
            self.go_on()

    def go_on(self) -> None:
        """Carry out what is open, and what a predecessor has left."""
        for name, ordered in self.gang.docket.open.items():
            if name not in self._tasks:
                self._tasks[name] = asyncio.get_running_loop().create_task(self._carry_out(ordered))

    async def _carry_out(self, ordered: Ordered) -> None:
        what = await (self._die(ordered) if ordered.fault.kind == "kill-supervisor" else self._strike(ordered))
        if what is not None and not self.gang.story.ended:
            self._tell(ordered.fault, what)

    def _tell(self, fault: Fault, what: str) -> None:
        """The event and that it is told are one entry of the journal."""
        self.gang.docket.told.add(fault.id)
        del self.gang.docket.open[fault.id]
        self.gang.story.tell_fault(fault, what)

    async def _die(self, ordered: Ordered) -> str:
        """The supervisor's own death, after which its successor comes here again."""
        if not ordered.at:
            await self._write_ahead(ordered, self.gang.order.name)
            os.kill(os.getpid(), signal.SIGKILL)
        return "SIGKILL to the gang's supervisor"

    async def _strike(self, ordered: Ordered) -> str | None:
        """What was done; None when the gang ends before there is a trainer to do it to."""
        while self.gang.phase not in ("ending", "ended"):
            if self.gang.phase == "training" and (what := await self._try(ordered)) is not None:
                return what
            await asyncio.sleep(LOOK_S)
        return None

    async def _try(self, ordered: Ordered) -> str | None:
        """What was done; None when it is to be tried again."""
        member, fault = self.gang.members[ordered.fault.rank or 0], ordered.fault
        if ordered.at and ordered.at != member.name:
            return "the rank's actor died before it could say that it was done"
        await self._write_ahead(ordered, member.name)
        answer = await self._ask(member, fault)
        if isinstance(answer, str):
            return answer
        if answer is None:
            ordered.at = ""  # nothing was done: the next actor may be asked
        elif fault.kind == "kill-actor" and not isinstance(answer, TimeoutError):
            return f"SIGKILL to the actor of rank {member.rank}"
        return None

    async def _write_ahead(self, ordered: Ordered, at: str) -> None:
        if not ordered.at:
            ordered.at = at
            await self.gang.journal.settled()

    async def _ask(self, member: Member, fault: Fault) -> str | BaseException | None:
        """What the rank did, None when it could not; or why it does not answer, which for `kill-actor` is the answer."""
        asking = within(ANSWER_S, member.actor.inject.remote(fault.to_json(), self.gang.order.run.get("checkpoints")))
        answers: list[str | BaseException | None] = await asyncio.gather(asking, return_exceptions=True)
        return answers[0]
