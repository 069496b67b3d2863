"""Where a gang's ranks sit: its placement group, an actor for each rank in its bundle, and another one where that died.

Rules that it keeps: all places or none; an actor that lives stays where it is; one that does not answer is replaced; who takes a dead
one's place sits in its bundle, in a new bundle of it when the node is gone, or is a spare.
"""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Any, Final, Protocol

from ...messages.rendezvous import SnapshotHandle
from ..gang_state import Repair
from ..hang_watchdog import LAST_WORD_S, START_S, within
from .members import Member, neighbour
from .placement_group import (
    NoRoom,
    Order,
    bundle_nodes,
    kill,
    make_actor,
    rank_name,
    rearranged,
    remove_remains,
    reserve,
)
from .spares import Spares

PLACEMENT_S: Final = 120.0


class Gang(Protocol):
    """What is needed of the supervisor."""

    order: Order
    members: list[Member]
    spares: Spares
    repair: Repair | None
    generation: int
    stopping: str | None

    @property
    def phase(self) -> str: ...


class Seats:
    """The placement group of one gang and who sits in it."""

    def __init__(self, gang: Gang) -> None:
        self.gang = gang
        self.group: Any = None

    async def place(self) -> bool:
        """Wait until the placement group is ready; False when the gang is stopped before. Raises NoRoom."""
        order = self.gang.order
        await self.find()
        elastic = order.elastic_grace_s if self.gang.phase == "repairing" else None
        patience_s = PLACEMENT_S if elastic is None else elastic
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline and not self.gang.stopping:
            if await asyncio.to_thread(self.group.wait, 1):
                return True
        if self.gang.stopping:
            return False
        spares = f" and {order.spares} spares" if order.spares else ""
        message = f"the cluster had no room for {order.world_size} {order.device} ranks{spares}"
        raise NoRoom(f"{message} within {patience_s:.0f} s")

    async def find(self) -> None:
        """Know the placement group again that a predecessor has reserved."""
        self.group = await asyncio.to_thread(reserve, self.gang.order)

    async def replace_the_lost(self, but: Sequence[Member] = ()) -> None:
        """Another actor for each rank whose actor has died, whoever knows it. `but`: these were replaced just now."""
        await asyncio.gather(*(self._look_after(member) for member in self.gang.members if member not in but))
        await self.replace([member for member in self.gang.members if member.lost])

    async def replace(self, members: Sequence[Member]) -> None:
        """Another actor for each of these ranks: a spare where one may, else a new one in the place of what it had."""
        dead = [member.actor for member in members if member.actor is not None]
        others = [member for member in members if not self.gang.spares.stand_in(member)]
        if self.gang.repair is not None and self.gang.phase == "repairing":
            self.gang.repair.spares += [member.rank for member in members if member not in others]
            if others and not await self._placed_anew(others):
                return
        await asyncio.to_thread(self._create_actors, dead, others)

    async def _placed_anew(self, members: Sequence[Member]) -> bool:
        """With a node, Ray places its bundles anew, which takes room and time; False when the gang is stopped meanwhile."""
        if not await self.place():
            return False
        tensor = self.gang.order.tensor
        where = await asyncio.to_thread(bundle_nodes, self.group)
        groups = [member.bundle for member in self.gang.members[::tensor]]
        if all(member.bundle == groups[member.rank // tensor] for member in self.gang.members):  # no spare within
            anew = rearranged(tensor, groups, {member.rank for member in members}, where)
            for member in members:
                member.bundle = anew[member.rank // tensor]
        return True

    async def _look_after(self, member: Member) -> None:
        """Find out whether a rank's actor still lives."""
        from ray.exceptions import RayError

        if not member.lost:
            try:
                await within(LAST_WORD_S, member.actor.beat.remote())
            except (RayError, TimeoutError):
                member.lost = True

    def _create_actors(self, dead: list[Any], members: list[Member]) -> None:
        for actor in dead:
            kill(actor)
        for member in members:
            name = rank_name(self.gang.order.name, member.rank, self.gang.generation + 1)
            member.sits(make_actor(self.gang.order, self.group, member.bundle, name), name, member.bundle)

    async def guard(self) -> None:
        """Let each rank's snapshots be held by the next rank of its node, so that they outlive its actor."""
        from ray.exceptions import RayError

        for member in self.gang.members:
            guard, here = neighbour(self.gang.members, member), member.reservation
            if guard is None or guard.actor is None or here is None:
                member.remains = None
                continue
            mine = SnapshotHandle(here.node, here.pid, here.slots)
            with contextlib.suppress(RayError, TimeoutError):
                member.remains = await within(START_S, guard.actor.guard.remote(member.rank, mine))

    async def remove(self) -> None:
        """Kill the rank actors (their trainers end with them) and give the devices back."""
        actors = [member.actor for member in self.gang.members if member.actor is not None]
        await asyncio.to_thread(remove_remains, self.gang.order.name, actors + await self.gang.spares.end())
