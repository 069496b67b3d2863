"""The supervisor's view of the ranks, and what follows from where they sit."""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from ...messages.rendezvous import Coords, Reservation, SnapshotHandle
from ...snapshot.replication import buddies
from ..gang_state import RankState
from .placement_group import Order

#: Last lines of a rank's log that an incident keeps. faulthandler writes at most 100 frames per thread, the innermost first.
LAST_LINES: Final = 128


@dataclass
class Member:
    """One rank."""

    rank: int
    bundle: int = 0  # of the placement group, where its actor sits
    name: str = ""  # of its actor
    actor: Any = None
    reservation: Reservation | None = None
    done: bool = False
    exited: bool = False
    failed: bool = False  # told an exception
    stopped: bool = False  # its work ended early, as was wished
    pulled: int = 0  # number of the newest event taken from it
    step: int = 0  # the newest step that it reported
    reader: "asyncio.Task[None] | None" = field(default=None, repr=False)
    lost: bool = False  # its actor died
    log: deque[str] = field(default_factory=lambda: deque(maxlen=LAST_LINES), repr=False)  # its last lines
    remains: SnapshotHandle | None = None  # its snapshots, as a neighbour on its node holds them
    keeper: str | None = None  # name of the actor that keeps copies of its snapshots, on another node

    @property
    def node(self) -> str | None:
        return self.reservation.node if self.reservation else None

    def to_state(self) -> RankState:
        """Without its last lines: of a thousand ranks they would be most of the journal."""
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
            snapshots=self.remains,
            replica_holder=self.keeper,
        )

    @classmethod
    def from_state(cls, state: RankState) -> Self:
        return cls(
            rank=state.rank,
            bundle=state.bundle,
            name=state.name,
            reservation=state.reservation,
            done=state.done,
            exited=state.exited,
            failed=state.failed,
            stopped=state.stopped,
            pulled=state.pulled,
            step=state.step,
            lost=state.lost,
            remains=state.snapshots,
            keeper=state.replica_holder,
        )

    def sits(self, actor: Any, name: str, bundle: int) -> None:
        """Another actor has the rank."""
        self.actor, self.name, self.bundle = actor, name, bundle
        self.pulled, self.lost, self.reservation = 0, False, None

    def give_up(self) -> None:
        """Its node is gone: nothing more will come of it."""
        self.exited = self.lost = True
        self.remains = None
        if self.reader:
            self.reader.cancel()

    def renew(self) -> None:
        """For the next generation."""
        self.done = self.exited = self.failed = self.stopped = self.lost = False
        self.reader = None


def nodes(members: Sequence[Member]) -> list[str]:
    return sorted({member.node for member in members if member.node})


def neighbour(members: Sequence[Member], member: Member) -> Member | None:
    """The next rank on the same node, of those in a ring; None when it is alone there."""
    same = [other for other in members if other.node == member.node]
    guard = same[(same.index(member) + 1) % len(same)]
    return None if guard is member else guard


def pair(members: Sequence[Member]) -> None:
    """Say who keeps whose copies in the generation for which all have reserved."""
    for member, buddy in zip(members, buddies([member.node for member in members]), strict=True):
        member.keeper = None if buddy is None else members[buddy].name


def keeper(members: Sequence[Member], member: Member) -> Member | None:
    """The rank whose actor keeps copies of this one's snapshots; None when that actor is gone, or there never was one."""
    return next((other for other in members if other.name == member.keeper and other.actor is not None), None)


def keeps(members: Sequence[Member], member: Member) -> list[int]:
    """The ranks whose copies this one's actor keeps."""
    return [other.rank for other in members if other.keeper == member.name]


def coordinates(order: Order, members: Sequence[Member], restore: int | None) -> list[Coords]:
    """Every rank's place in the generation for which all of them have reserved."""
    places: dict[str, int] = {}
    first = members[0].reservation
    assert first is not None and first.port is not None
    coords = []
    for member in members:
        here = member.reservation
        assert here is not None
        local = places.get(here.node, 0)
        places[here.node] = local + 1
        coords.append(
            Coords(
                rank=member.rank,
                world_size=order.world_size,
                local_rank=local,
                master_host=first.host,
                master_port=first.port,
                generation=here.generation,
                interface=here.interface,
                device="cuda" if order.device == "cuda" else "cpu",
                timeout_s=order.timeout_s,
                copied=member.keeper is not None,
                restore=restore,
            )
        )
    return coords
