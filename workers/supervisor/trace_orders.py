"""Step traces: each is ordered from all ranks, its events are passed on, and it ends once.

One trace at a time, in the order of arrival. A trace is in the journal before any rank receives it. A successor sends it again, and
a rank that has it ignores that. Its events are emitted as they come, beside the merged ones. A trace ends when every rank that is
traced has reported all of its steps. If its generation or the gang ends first, the trace fails, with the reason.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from ..messages.event import TraceFinishedEvent, to_json
from ..messages.event_buffer import Event, Spool
from ..messages.trace_request import Trace, traced_ranks
from .gang_state import PendingTrace, Phase, TracesState
from .orders import OrderQueue
from .ranks.members import Member

#: Seconds between two checks whether the gang trains, or a trace has ended.
POLL_S: Final = 0.1


class TraceOrders:
    """The traces of one gang of `world_size` ranks; their events go to `spool`."""

    def __init__(self, world_size: int, queue: OrderQueue[PendingTrace], spool: Spool) -> None:
        self.world_size = world_size
        self.queue = queue
        self.spool = spool

    def to_state(self) -> TracesState:
        return TracesState(list(self.queue.pending.values()), list(self.queue.reported))

    def resume(self, state: TracesState) -> None:
        self.queue.resume(((one.trace.id, one) for one in state.pending), state.reported)

    async def carry_out(self, members: Sequence[Member], phase: Callable[[], Phase]) -> None:
        """Carry out each trace in turn: send it while the gang trains, again until all ranks have it, then wait for its end."""
        all_have: set[str] = set()
        while self.queue.pending and phase() not in ("ending", "ended"):
            name, pending = next(iter(self.queue.pending.items()))
            if phase() == "training" and name not in all_have:
                if not pending.sent:
                    pending.sent = True
                    await self.queue.settled()
                if await self._send(pending.trace, members):
                    all_have.add(name)
            await asyncio.sleep(POLL_S)

    async def _send(self, trace: Trace, members: Sequence[Member]) -> bool:
        """Send the trace to all ranks; returns whether every rank has received it."""
        living = [member.handle for member in members if member.handle is not None and not member.exited]
        answers: list[Any] = await asyncio.gather(*(handle.trace(trace) for handle in living), return_exceptions=True)
        return len(living) == self.world_size and not any(isinstance(one, BaseException) for one in answers)

    def take_step(self, event: Event) -> None:
        """A rank's step of a trace; events of a finished trace are dropped."""
        if event["data"]["id"] in self.queue.pending:
            self.spool.add("trace", event["data"], event["ts"])

    def take_end(self, rank: int, event: Event) -> None:
        """A rank has reported all of a trace's steps."""
        pending = self.queue.pending.get(event["data"]["id"])
        if pending is None:
            return
        first, last = event["data"]["steps"]
        pending.finished[rank] = (first, last)
        if set(pending.finished) >= set(traced_ranks(self.world_size)):
            steps, asked = last - first + 1, pending.trace.steps
            message = "" if steps == asked else f"{steps} of {asked} steps: the training ended"
            self._end(pending.trace, True, message, (first, last))

    def end_generation(self, reason: str) -> None:
        """End the traces whose records were lost with their trainers. Traces that no trainer received wait for the next generation."""
        self._give_up([pending for pending in self.queue.pending.values() if pending.sent], reason)

    def end_gang(self) -> None:
        """End all traces: none is recorded any more."""
        self._give_up(self.queue.pending.values(), "the training ended before the trace was whole")

    def _give_up(self, pending: Iterable[PendingTrace], reason: str) -> None:
        for one in list(pending):
            self._end(one.trace, False, reason, next(iter(one.finished.values()), None))

    def _end(self, trace: Trace, done: bool, message: str, steps: tuple[int, int] | None) -> None:
        self.queue.report(trace.id)
        event = TraceFinishedEvent(id=trace.id, done=done, message=message, steps=steps)
        self.spool.add(event.kind, to_json(event), urgent=True)
