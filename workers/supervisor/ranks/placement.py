"""Places a gang's ranks: its placement group, an actor for each rank in its bundle, and a new actor for one that died.

Rules that it keeps: all places or none; an actor that lives keeps its rank; one that does not answer is replaced. The new actor of a
rank is a hot spare if one may take the rank. Otherwise it runs in the dead one's bundle, which Ray moves if its node is gone. A rank
whose bundle has not moved keeps it, because its memory is there.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...messages.gang_spec import GangSpec
from ...messages.rendezvous import SnapshotHandle
from ..until_answered import until_answered
from .handles import TRAINER_END_S, RankHandle
from .members import Member
from .neighbours import Neighbours
from .placement_group import (
    NoRoom,
    bundle_nodes,
    existing,
    kill,
    make_actor,
    rank_name,
    rearranged,
    remove_actors_and_group,
    remove_group,
    reserve,
)
from .room import Choice, choose_nodes, node_places
from .spares import Spares

PLACEMENT_S: Final = 120.0
#: Seconds until nodes are chosen again for a gang that has no devices yet: another gang may have taken those of the first choice.
CHOOSE_AGAIN_S: Final = 3.0
#: Ranks whose snapshots are given to their neighbours at a time.
HOLD_AT_ONCE: Final = 16


@dataclass(frozen=True)
class RankReplaced:
    """Another actor has a rank now."""

    rank: int
    handle: RankHandle
    name: str
    bundle: int


class Placement:
    """The placement group of one gang and its actors. `stopping()`: whether the gang is stopping, so that waiting is useless."""

    def __init__(self, spec: GangSpec, spares: Spares, stopping: Callable[[], bool]) -> None:
        self.spec = spec
        self.spares = spares
        self.group: Any = None
        self._choice: Choice | None = None  # of a group that was made here and is not ready yet
        self._stopping = stopping

    async def place(self, patience_s: float = PLACEMENT_S, bundles: Collection[int] = ()) -> bool:
        """Wait until the placement group is ready; False when the gang is stopped before. Raises NoRoom.

        The group is asked once at least: after an actor's death it is as ready as before. `bundles`: if these have nodes, the group need
        not be ready. It is not while another bundle, such as a spare's, has lost its node.
        """
        spec = self.spec
        await self.find()
        deadline = time.monotonic() + patience_s
        choose_at = time.monotonic() + CHOOSE_AGAIN_S
        while not self._stopping():
            if self.group is None:
                await asyncio.sleep(1)
            elif await self._has_placed(bundles) or await asyncio.to_thread(self.group.wait, 1):
                self._choice = None
                return True
            if time.monotonic() >= deadline:
                break
            if self._choice is not None and time.monotonic() > choose_at:
                await asyncio.to_thread(self._choose_again)
                choose_at = time.monotonic() + CHOOSE_AGAIN_S
        if self._stopping():
            return False
        spares = f" and {spec.spares} spares" if spec.spares else ""
        all_ranks = f"{spec.world_size} {spec.device} ranks{spares}"
        wanted = f"the bundles of {len(bundles)} lost ranks or tensor groups" if bundles else all_ranks
        raise NoRoom(f"the cluster had no room for {wanted} within {patience_s:.0f} s")

    async def _has_placed(self, bundles: Collection[int]) -> bool:
        """Whether each of these bundles has a node. False for no bundles."""
        return bool(bundles) and all(map((await self.nodes()).get, bundles))

    async def find(self) -> None:
        """The placement group that a predecessor has reserved, or a new one. None while no zone or domain has room for it."""
        self.group = await until_answered(lambda: existing(self.spec))
        if self.group is None:
            await asyncio.to_thread(self._choose_again)

    def _choose_again(self) -> None:
        """Reserve on the nodes that are best now. A group that waits for other nodes is given up."""
        choice = choose_nodes(self.spec)
        if choice == self._choice:
            return
        if self.group is not None:
            remove_group(self.group)
        self._choice = choice
        self.group = reserve(self.spec, choice.selectors) if choice.possible else None

    async def nodes(self) -> dict[int, str]:
        """Bundle → the node on which it lies, or "" while it has none. Empty when the cluster does not answer."""
        from ray.exceptions import RayError

        if self.group is not None:
            with contextlib.suppress(RayError):
                return await asyncio.to_thread(bundle_nodes, self.group)
        return {}

    async def lost(self, members: Sequence[Member]) -> list[Member]:
        """Those of `members` whose actors have died or do not answer."""
        lives = await asyncio.gather(*(self._lives(member) for member in members))
        return [member for member, alive in zip(members, lives, strict=True) if not alive]

    async def _lives(self, member: Member) -> bool:
        from ray.exceptions import RayError

        if member.living is None:
            return False
        try:
            await member.living.heartbeat(TRAINER_END_S)
        except (RayError, TimeoutError):
            return False
        return True

    async def create(self, members: Sequence[Member], generation: int) -> list[RankReplaced]:
        """A new actor for each of `members`, in its bundle; those that they had are killed."""
        bundles = {member.rank: member.bundle for member in members}
        dead = [member.handle for member in members]
        return await asyncio.to_thread(self._create_actors, dead, bundles, generation)

    def promote_spares(self, lost: Sequence[Member]) -> list[RankReplaced]:
        """A hot spare for each of `lost` for which there is one."""
        found = []
        for member in lost:
            spare = self.spares.promote(member)
            if spare is not None and spare.handle is not None:
                found.append(RankReplaced(member.rank, spare.handle, spare.name, spare.bundle))
        return found

    async def replace(
        self, members: Sequence[Member], lost: Sequence[Member], dead: Sequence[RankHandle | None], generation: int
    ) -> list[RankReplaced]:
        """A new actor for each of `lost`; kills `dead` before. None at all when the gang is stopped meanwhile. Raises NoRoom."""
        bundles = await self._place_again(members, lost) if lost else {}
        if bundles is None:
            return []
        return await asyncio.to_thread(self._create_actors, dead, bundles, generation)

    async def _place_again(self, members: Sequence[Member], lost: Sequence[Member]) -> dict[int, int] | None:
        """The bundles of lost ranks. Ray moves those of a lost node, which needs room and time. None: the gang is stopped."""
        grace_s = self.spec.elastic_grace_s
        bundles = {member.bundle for member in lost}
        if not await self.place(PLACEMENT_S if grace_s is None else grace_s, bundles):
            return None
        tensor = self.spec.tensor
        where = await asyncio.to_thread(bundle_nodes, self.group)
        groups = [member.bundle for member in members[::tensor]]
        if any(member.bundle != groups[member.rank // tensor] for member in members):  # a spare is in a tensor group
            return {member.rank: member.bundle for member in lost}
        places = await asyncio.to_thread(node_places)
        moved = {member.rank for member in lost if _has_moved(member, where)}
        groups = rearranged(tensor, groups, moved, where, places)
        return {member.rank: groups[member.rank // tensor] for member in lost}

    def _create_actors(
        self, dead: Sequence[RankHandle | None], bundles: dict[int, int], generation: int
    ) -> list[RankReplaced]:
        """`bundles`: of each rank that gets a new actor."""
        for handle in dead:
            if handle is not None:
                kill(handle.actor)
        created = []
        for rank, bundle in bundles.items():
            name = rank_name(self.spec.name, rank, generation)
            actor = make_actor(self.spec, self.group, bundle, name)
            created.append(RankReplaced(rank, RankHandle(actor), name, bundle))
        return created

    async def hold_snapshots(self, members: Sequence[Member]) -> AsyncIterator[tuple[Member, SnapshotHandle | None]]:
        """Have each rank's snapshots held by the next rank of its node, so that they outlive its actor. Yields each one's as held.

        None: no other rank is on the node. Skips a rank whose neighbour does not answer or cannot hold them, and one whose actor has
        died or was replaced: what holds its snapshots is all that is left of them. Some calls run at a time; they end in any order.
        """
        from ray.exceptions import RayError

        near, room = Neighbours(members), asyncio.Semaphore(HOLD_AT_ONCE)

        async def hold(member: Member) -> list[tuple[Member, SnapshotHandle | None]]:
            async with room:
                holder, here = near.following(member), member.reservation
                if member.living is None or here is None:
                    return []
                if holder is None or holder.handle is None:
                    return [(member, None)]
                mine = SnapshotHandle(here.node, here.pid, here.slots)
                with contextlib.suppress(RayError, TimeoutError):
                    held = await holder.handle.snapshots.hold(member.rank, mine)
                    if held is not None:  # its actor has not died just now
                        return [(member, held)]
                return []

        calls = [asyncio.ensure_future(hold(member)) for member in members]
        try:
            for ended in asyncio.as_completed(calls):
                for held in await ended:
                    yield held
        finally:
            for call in calls:
                call.cancel()

    async def remove(self, members: Sequence[Member]) -> None:
        """Kill the rank actors (their trainers end with them) and give the devices back."""
        handles = [member.handle for member in members] + await self.spares.end()
        actors = [handle.actor for handle in handles if handle is not None]
        await until_answered(lambda: remove_actors_and_group(self.spec.name, actors))


def _has_moved(member: Member, where: Mapping[int, str]) -> bool:
    """Whether a lost rank's bundle has left the node that has the rank's memory."""
    # A new actor that never answered has no reservation; a neighbour of the one before may still hold the snapshots.
    held_by = member.snapshots.node if member.snapshots else None
    return where.get(member.bundle) != (member.node or held_by)
