"""Commands beside ranks: each runs at most once, and is reported once.

Before the supervisor sends a command, it writes the actor's name in the journal. If the supervisor dies then, its successor sends the
command to the same actor, which runs each id once. An actor that replaces a dead one gets no command of its predecessor: it may have run.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final

from ..messages.exec_request import ExecEnd
from .gang_state import ExecsState, PendingExec, Phase
from .orders import OrderQueue
from .policies.failures import brief
from .ranks.members import Member

#: Seconds between two checks of a gang that does not train.
POLL_S: Final = 0.1
#: Seconds for the last of the output to arrive.
OUTPUT_S: Final = 30.0
#: Seconds for a rank to have a process.
PATIENCE_S: Final = 60.0


class ExecOrders:
    """The commands of one gang. `phase()` returns the gang's present phase."""

    def __init__(self, queue: OrderQueue[PendingExec], members: Sequence[Member], phase: Callable[[], Phase]) -> None:
        self.queue = queue
        self.members = members
        self._phase = phase

    def to_state(self) -> ExecsState:
        return ExecsState(list(self.queue.pending.values()), list(self.queue.reported))

    def resume(self, state: ExecsState) -> None:
        self.queue.resume(((one.order.id, one) for one in state.pending), state.reported)

    async def carry_out(self, pending: PendingExec) -> ExecEnd | None:
        """How the command ended. None if the gang ends before."""
        deadline = time.monotonic() + PATIENCE_S
        while self._phase() not in ("ending", "ended"):
            end = await self._run(pending) if self._phase() == "training" else None
            if end is not None:
                return end
            if not pending.at and time.monotonic() >= deadline:
                return ExecEnd(f"rank {pending.order.rank} had no process within {PATIENCE_S:g} s")
            await asyncio.sleep(POLL_S)
        return None

    async def _run(self, pending: PendingExec) -> ExecEnd | None:
        """None: it must be tried again."""
        member = self.members[pending.order.rank]
        if pending.at and pending.at != member.name:
            return ExecEnd("the rank's actor died before it could report the command's end")
        if member.handle is None:
            return None
        if not pending.at:
            pending.at = member.name
            await self.queue.settled()
        (answer,) = await asyncio.gather(member.handle.execute(pending.order), return_exceptions=True)
        if isinstance(answer, TimeoutError):
            return ExecEnd(f"the rank's actor did not report the command's end: {brief(answer)}")
        if isinstance(answer, BaseException):
            return None  # the actor has died, or is about to be found dead
        if answer is None:
            pending.at = ""  # it was not run
            return None
        await self._until_printed(member, answer.last)
        return answer

    async def _until_printed(self, member: Member, last: int) -> None:
        """Wait until the output has been emitted, which is before the command's end then."""
        deadline = time.monotonic() + OUTPUT_S
        while member.pulled < last and not member.exited and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)
