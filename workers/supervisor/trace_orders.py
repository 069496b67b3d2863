"""The supervisor's part in traces that somebody asked for: each is ordered of all ranks, passed on as they tell it, and ended once.

One trace at a time, in the order in which they were asked for. An order is written in the journal before any rank gets it; a successor
gives it again, and a rank that has it takes no notice. What is told of it is told as it comes: it stands beside the story, which it
never holds up. A trace ends when every rank that is traced has told all of its steps; or undone, with the reason, when its generation
ends before, or the gang.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, Self

from ..messages.event_buffer import Event, Spool
from ..messages.trace_request import Trace, traced_ranks
from .gang_state import PendingTrace, TracesState
from .hang_watchdog import ANSWER_S, within
from .journal.journal import Journal
from .ranks.members import Member
from .ranks.placement_group import Order

#: So often is looked whether the gang trains, or a trace has ended.
LOOK_S: Final = 0.1


@dataclass
class Ordered:
    """A trace that has not ended. `sent`: trainers may know of it; `told`: rank → first and last step, of those that told them all."""

    trace: Trace
    sent: bool = False
    told: dict[int, tuple[int, int]] = field(default_factory=dict)


@dataclass
class Book:
    """What a restarted supervisor must know: traces by id, oldest first, and which have ended."""

    open: dict[str, Ordered] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)

    def to_state(self) -> TracesState:
        return TracesState([PendingTrace(o.trace, o.sent, o.told) for o in self.open.values()], sorted(self.ended))

    @classmethod
    def from_state(cls, state: TracesState) -> Self:
        return cls({o.trace.id: Ordered(o.trace, o.sent, o.finished) for o in state.pending}, set(state.reported))


class Gang(Protocol):
    """What is needed of the supervisor."""

    order: Order
    journal: Journal
    spool: Spool
    members: list[Member]
    book: Book

    @property
    def phase(self) -> str: ...


class Traces:
    """Takes orders and what the ranks tell of them."""

    def __init__(self, gang: Gang) -> None:
        self.gang = gang
        self._task: asyncio.Task[None] | None = None

    async def order(self, trace: Trace) -> None:
        """Returns when the order cannot be lost any more. Harmless when it comes again."""
        if trace.id not in self.gang.book.ended:
            self.gang.book.open.setdefault(trace.id, Ordered(trace))
            await self.gang.journal.settled()
            self.go_on()

    def go_on(self) -> None:
        """See to what is open, and what a predecessor has left."""
        if self.gang.book.open and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._see_to_them())

    async def _see_to_them(self) -> None:
        """Each in its turn: given to a gang that trains, again until all ranks have it, and then waited for."""
        everybody_has: set[str] = set()
        while self.gang.book.open and self.gang.phase not in ("ending", "ended"):
            name, ordered = next(iter(self.gang.book.open.items()))
            if self.gang.phase == "training" and name not in everybody_has:
                ordered.sent = True
                await self.gang.journal.settled()
                if await self._give(ordered.trace):
                    everybody_has.add(name)
            await asyncio.sleep(LOOK_S)

    async def _give(self, trace: Trace) -> bool:
        """Whether every rank has taken it."""
        living = [member for member in self.gang.members if member.actor is not None and not member.exited]
        calls = [within(ANSWER_S, member.actor.trace.remote(trace.to_json())) for member in living]
        answers: list[Any] = await asyncio.gather(*calls, return_exceptions=True)
        return len(living) == self.gang.order.world_size and not any(isinstance(one, BaseException) for one in answers)

    def hear(self, _: Member, event: Event) -> None:
        """A rank tells a step of a trace; of one that has ended nobody wants to know."""
        if event["data"]["id"] in self.gang.book.open:
            self.gang.spool.add("trace", event["data"], event["ts"])

    def hear_end(self, member: Member, event: Event) -> None:
        """A rank has told all steps."""
        ordered = self.gang.book.open.get(event["data"]["id"])
        if ordered is None:
            return
        first, last = event["data"]["steps"]
        ordered.told[member.rank] = (first, last)
        if set(ordered.told) >= set(traced_ranks(self.gang.order.world_size)):
            steps = last - first + 1
            asked = ordered.trace.steps
            message = "" if steps == asked else f"{steps} of {asked} steps: the training ended"
            self._end(ordered.trace, True, message, [first, last])

    def generation_ends(self, why: str) -> None:
        """Trainers are gone, and with them what they were recording. What they have not heard of waits for the next ones."""
        self._give_up([ordered for ordered in self.gang.book.open.values() if ordered.sent], why)

    def gang_ends(self) -> None:
        """Nothing will be traced any more."""
        self._give_up(self.gang.book.open.values(), "the training ended before the trace was whole")

    def _give_up(self, ordered: Iterable[Ordered], why: str) -> None:
        for one in list(ordered):
            self._end(one.trace, False, why, next(iter(one.told.values()), None))

    def _end(self, trace: Trace, done: bool, message: str, steps: Any) -> None:
        """The event, and that it is told, are one entry of the journal."""
        del self.gang.book.open[trace.id]
        self.gang.book.ended.add(trace.id)
        told = {"id": trace.id, "done": done, "message": message, "steps": steps and list(steps)}
        self.gang.spool.add("traced", told, urgent=True)
