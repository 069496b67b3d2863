"""The supervisor's view of the ranks."""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from ...messages.rendezvous import Reservation, SnapshotHandle
from ..gang_state import RankState
from ..policies.failures import Failure
from .handles import RankHandle

#: Last lines of a rank's log that an incident keeps. faulthandler writes at most 100 frames per thread, the innermost first.
LAST_LINES: Final = 128


@dataclass
class Member:
    """One rank."""

    rank: int
    bundle: int = 0  # of the placement group, where its actor runs
    name: str = ""  # of its actor
    handle: RankHandle | None = None
    reservation: Reservation | None = None
    done: bool = False
    exited: bool = False
    failed: bool = False  # reported an exception
    stopped: bool = False  # it ended before its last step, on request
    pulled: int = 0  # number of the newest event taken from it
    news: int = field(default=0, repr=False)  # events of its trainer that were taken, since this supervisor began
    writing: bool = field(default=False, repr=False)  # what was taken from it waits for a write of the journal
    step: int = 0  # the newest step that it reported
    reader: "asyncio.Task[None] | None" = field(default=None, repr=False)
    lost: bool = False  # its actor died
    log: deque[str] = field(default_factory=lambda: deque(maxlen=LAST_LINES), repr=False)  # its last lines
    watchdog: str | None = (
        None  # the line of its log in which NCCL's watchdog aborts it; its stacks may push it out of `log`
    )
    snapshots: SnapshotHandle | None = None  # as the next rank on its node holds them
    replica_holder: str | None = None  # name of the actor on another node that holds replicas of its snapshots
    trained: bool = False  # it has reported a step of this generation, since this supervisor began
    absence: Failure | None = None  # why it is gone, where the others train on without it

    @property
    def node(self) -> str | None:
        return self.reservation.node if self.reservation else None

    @property
    def living(self) -> RankHandle | None:
        """Its actor, if that did not die."""
        return None if self.lost else self.handle

    @property
    def placed(self) -> RankHandle:
        """The rank's actor. Every rank has one after the gang's placement."""
        assert self.handle is not None, f"rank {self.rank} has no actor yet"
        return self.handle

    def to_state(self) -> RankState:
        """For the journal, without its last lines: of a thousand ranks they would be most of it."""
        return RankState(
            rank=self.rank,
            bundle=self.bundle,
            name=self.name,
            reservation=self.reservation,
            done=self.done,
            exited=self.exited,
            failed=self.failed,
            stopped=self.stopped,
            pulled=self.pulled,
            step=self.step,
            lost=self.lost,
            snapshots=self.snapshots,
            replica_holder=self.replica_holder,
        )

    @classmethod
    def from_state(cls, state: RankState) -> Self:
        """Without its actor, which is found by its name."""
        return cls(**vars(state))

    def assign(self, handle: RankHandle, name: str, bundle: int) -> None:
        """Give the rank another actor."""
        self.handle, self.name, self.bundle = handle, name, bundle
        self.pulled, self.lost, self.reservation = 0, False, None

    def lose_node(self) -> None:
        """Record that its node is gone: it sends no more events, and its snapshots are lost."""
        self.exited = self.lost = True
        self.snapshots = None
        if self.reader:
            self.reader.cancel()

    def renew(self) -> None:
        """Reset it for the next generation."""
        self.done = self.exited = self.failed = self.stopped = self.lost = False
        self.reader = self.watchdog = self.absence = None
        self.trained = False


async def call_each(members: Sequence[Member], call: Callable[[RankHandle], Awaitable[None]]) -> None:
    """Call every actor whose trainer runs, and ignore those that do not answer."""
    running = [member.handle for member in members if member.handle is not None and not member.exited]
    await asyncio.gather(*(call(handle) for handle in running), return_exceptions=True)


async def drain(
    members: Sequence[Member], timeout_s: float, most_s: float = 0.0, goes_on: Callable[[], bool] = lambda: True
) -> list[Member]:
    """Wait for every rank's report of its trainer's exit, which is soon after a kill; returns those without.

    If there was news of one of these trainers within `timeout_s`, they have as long again, up to `most_s` in all, while `goes_on()`.
    So they have if the journal needed all of that time for one write: it is the supervisor that is late then, and not the rank.
    """
    readers = {member.reader: member for member in members if member.reader}
    deadline = time.monotonic() + most_s
    late: set[asyncio.Task[None]] = set(readers)
    while late:
        before = {reader: (readers[reader].news, readers[reader].pulled) for reader in late}
        _, late = await asyncio.wait(late, timeout=timeout_s)
        is_over = time.monotonic() >= deadline or not goes_on()
        if is_over or not any(_gets_on(readers[reader], *before[reader]) for reader in late):
            break
    for reader in late:
        reader.cancel()  # the rank's next one takes what this one has not taken
    return [readers[reader] for reader in late if not readers[reader].exited]


def _gets_on(member: Member, news: int, pulled: int) -> bool:
    """Whether there is news of its trainer since these numbers, or one write of the journal goes on since then."""
    return member.news != news or (member.writing and member.pulled == pulled)


def nodes(members: Sequence[Member]) -> list[str]:
    return sorted({member.node for member in members if member.node})


@contextlib.asynccontextmanager
async def leases_kept(members: Sequence[Member], lease_s: float, at_once: bool = False) -> AsyncIterator[None]:
    """Sends heartbeats to all ranks so that their leases do not expire during a long repair. `at_once`: they may be about to expire."""
    heartbeats = asyncio.get_running_loop().create_task(_send_heartbeats(members, lease_s / 3, at_once))
    try:
        yield
    finally:
        heartbeats.cancel()


async def _send_heartbeats(members: Sequence[Member], every_s: float, at_once: bool) -> None:
    wait_s = 0.0 if at_once else every_s
    while True:
        await asyncio.sleep(wait_s)
        wait_s = every_s
        living = [member.handle for member in members if member.handle is not None and not member.lost]
        await asyncio.gather(*(handle.heartbeat(every_s) for handle in living), return_exceptions=True)


def newest_generation(members: Sequence[Member]) -> int:
    """The newest generation for which a rank has reserved."""
    return max((member.reservation.generation for member in members if member.reservation), default=0)
