"""The workers without which a generation trains on: which ends are accepted, and what is done about them (`policies/absence.py`).

Rule that it keeps: an incident is emitted for each, once; servers learn of it also where its connections stay open; its actor lives
until the rank returns.
"""

import asyncio

from .gang import Gang
from .policies.absence import announced, may_be_absent
from .policies.failures import Failure
from .ranks.handles import TRAINER_END_S
from .ranks.members import Member, call_each, leases_kept


class Absences:
    """Those of one gang."""

    def __init__(self, gang: Gang) -> None:
        self.gang = gang
        self._kept: list[asyncio.Task[None]] = []

    def accepts(self, failure: Failure) -> bool:
        """Whether the others train on without the rank of `failure`. Its incident is emitted then."""
        gang = self.gang
        if gang.phase != "training" or gang.ended.is_set() or not may_be_absent(failure, gang.spec):
            return False
        assert failure.rank is not None
        member = gang.members[failure.rank]
        if member.absence is not None:  # the end of a trainer that was killed because it hung
            return True
        if gang.snapshots_off or not (member.trained and gang.budget.is_left):
            return False
        member.absence = announced(failure, gang.spec.own_clocks - len(gang.absences) - 1)
        gang.emit_incident(member.absence)
        gang.pump.leave(gang.members, member.rank)
        gang.watch.progress.began()
        self._keep(member)
        return True

    def find(self) -> None:
        """After the supervisor's own death: the ranks that were gone before, or that a predecessor has ended because they hung."""
        gang = self.gang
        for member in [gang.members[rank] for rank in gang.spec.dispensable]:
            known = member.done or member.absence is not None
            if member.exited and not (known or gang.failures):
                member.absence = Failure("rank_lost", member.rank, "it was lost before the supervisor was", member.node)
                gang.pump.leave(gang.members, member.rank)
                gang.watch.progress.began()
                self._keep(member)

    def end(self) -> None:
        """The generation ends."""
        for keeping in self._kept:
            keeping.cancel()
        self._kept.clear()

    def _keep(self, member: Member) -> None:
        self._kept.append(asyncio.get_running_loop().create_task(self._until_it_returns(member)))

    async def _until_it_returns(self, member: Member) -> None:
        """Let the servers go on without a rank that is gone, and end its trainer, if it hangs. Keep its actor's lease."""
        await self.gang.journal.settled()  # one that has a successor orders nothing
        servers = self.gang.members[self.gang.spec.own_clocks :]
        await call_each(servers, lambda server: server.lose(member.rank))
        await call_each([member], lambda rank: rank.stop(0.0, TRAINER_END_S))
        async with leases_kept([member], self.gang.spec.lease_s):
            await asyncio.Event().wait()
