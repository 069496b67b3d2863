"""Injected faults: each is carried out once and reported once.

Before the supervisor sends a fault, it writes the actor's name in the journal. If the supervisor dies then, its successor sends the
fault to the same actor, which applies each fault id once (`fault_injector.py`). A fault waits until the gang trains.
If the gang ends first, the fault is not carried out, and the service reports that.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from typing import Final

from ..messages.gang_spec import GangSpec
from .gang_state import FaultsState, PendingFault, Phase
from .orders import OrderQueue
from .ranks.members import Member

#: Seconds between two checks of a gang that does not train.
POLL_S: Final = 0.1


class FaultOrders:
    """The faults of one gang. `phase()` returns the gang's present phase."""

    def __init__(
        self, spec: GangSpec, queue: OrderQueue[PendingFault], members: Sequence[Member], phase: Callable[[], Phase]
    ) -> None:
        self.spec = spec
        self.queue = queue
        self.members = members
        self._phase = phase

    def to_state(self) -> FaultsState:
        return FaultsState(list(self.queue.pending.values()), list(self.queue.reported))

    def resume(self, state: FaultsState) -> None:
        self.queue.resume(((one.fault.id, one) for one in state.pending), state.reported)

    async def carry_out(self, pending: PendingFault) -> str | None:
        """Text: what was done. None if the gang ends before there is a trainer to apply the fault to."""
        if pending.fault.kind == "kill-supervisor":
            return await self._kill_supervisor(pending)
        while self._phase() not in ("ending", "ended"):
            if self._phase() == "training" and (done := await self._inject(pending)) is not None:
                return done
            await asyncio.sleep(POLL_S)
        return None

    async def _kill_supervisor(self, pending: PendingFault) -> str:
        """Kill this process. Its successor calls this again, and returns what was done."""
        if not pending.at:
            await self._write_ahead(pending, self.spec.name)
            os.kill(os.getpid(), signal.SIGKILL)
        return "SIGKILL to the gang's supervisor"

    async def _inject(self, pending: PendingFault) -> str | None:
        """Text: what was done; None if it must be tried again."""
        member, fault = self.members[pending.fault.rank or 0], pending.fault
        if pending.at and pending.at != member.name:
            return "the rank's actor died before it could confirm the fault"
        if member.handle is None:
            return None
        await self._write_ahead(pending, member.name)
        injecting = member.handle.inject(fault, self.spec.run.get("checkpoints"))
        (answer,) = await asyncio.gather(injecting, return_exceptions=True)
        if isinstance(answer, str):
            return answer
        if answer is None:
            pending.at = ""  # it was not done, so another actor may get it
        elif fault.kind == "kill-actor" and not isinstance(answer, TimeoutError):
            return f"SIGKILL to the actor of rank {member.rank}"
        return None

    async def _write_ahead(self, pending: PendingFault, at: str) -> None:
        if not pending.at:
            pending.at = at
            await self.queue.settled()
