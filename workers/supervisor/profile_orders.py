"""Profiles of ranks: each is requested of its rank while the gang trains, and reported once.

An order is in the journal before its arrival is confirmed. A successor sends it again; the rank's actor has one profile of each id. An
actor that replaces a dead one takes the profile again, which harms nothing. If the gang ends first, the service reports that.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final

from ..messages.profile_request import Profile
from ..rank.profiler import Outcome
from .gang_state import Phase, ProfilesState
from .orders import OrderQueue
from .policies.failures import brief
from .ranks.handles import PROFILE_S
from .ranks.members import Member

#: Seconds between two checks of a gang that does not train, or of a rank without a process.
POLL_S: Final = 0.1
#: Seconds that a rank may be without a process or an actor: repairs take less. Beside it each of its profiles has its own time: a rank
#: takes one after the other.
PATIENCE_S: Final = 300.0


class ProfileOrders:
    """The profiles of one gang. `phase()` returns the gang's present phase."""

    def __init__(self, queue: OrderQueue[Profile], members: Sequence[Member], phase: Callable[[], Phase]) -> None:
        self.queue = queue
        self.members = members
        self._phase = phase

    def to_state(self) -> ProfilesState:
        return ProfilesState(list(self.queue.pending.values()), list(self.queue.reported))

    def resume(self, state: ProfilesState) -> None:
        self.queue.resume(((one.id, one) for one in state.pending), state.reported)

    async def carry_out(self, order: Profile) -> Outcome | None:
        """How the profile ended. None if the gang ends before."""
        queued = [one for one in self.queue.pending.values() if one.rank == order.rank]
        limit_s = PATIENCE_S + sum(one.seconds + PROFILE_S for one in queued)
        deadline = time.monotonic() + limit_s
        why = "the gang does not train"
        while self._phase() not in ("ending", "ended"):
            if self._phase() == "training":
                answer = await self._request(order)
                if isinstance(answer, Outcome):
                    return answer
                why = answer
            if time.monotonic() >= deadline:
                return Outcome(f"rank {order.rank} could not be profiled within {limit_s:g} s: {why}")
            await asyncio.sleep(POLL_S)
        return None

    async def _request(self, order: Profile) -> Outcome | str:
        """The outcome; or why it must be tried again."""
        member = self.members[order.rank]
        if member.handle is None:
            return "its actor is being replaced"
        (answer,) = await asyncio.gather(member.handle.profile(order), return_exceptions=True)
        if isinstance(answer, BaseException):
            return brief(answer)
        return "it has no process now" if answer is None else answer
