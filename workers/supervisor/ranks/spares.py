"""Hot spares: rank actors without a rank, each on a device of its own. One of them replaces an actor that died.

Rules that it keeps: a spare takes a rank only where the rank keeps its snapshots and its tensor group's common node. A new spare
is then made in the dead actor's bundle. Spares are made while the gang trains or runs its programs, not while its ranks start or are
repaired and need the machine. Every spare's name is in the journal before it is made, so that none is forgotten.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self
from uuid import uuid4

from ...messages.gang_spec import GangSpec
from ..gang_state import SpareState
from ..policies.topology import Place, by_place
from .handles import RankHandle
from .members import Member
from .placement_group import find_actor, kill, make_actor, spare_name

#: Seconds before a dead spare is replaced.
AGAIN_S: Final = 2.0


@dataclass
class Spare:
    """One place for a spare."""

    bundle: int
    name: str = ""  # of its actor; empty: none was made yet
    node: str | None = None  # where it is ready; None: it is not
    handle: RankHandle | None = field(default=None, repr=False)
    maintaining: "asyncio.Task[None] | None" = field(default=None, repr=False)

    def to_state(self) -> SpareState:
        return SpareState(self.bundle, self.name, self.node)

    @classmethod
    def from_state(cls, state: SpareState) -> Self:
        return cls(state.bundle, state.name, state.node)


def share_out(
    spec: GangSpec, where: Mapping[int, str], places: Mapping[str, Place] | None = None
) -> tuple[list[int], list[int]]:
    """The bundles of the ranks' tensor groups, those of one node, domain and zone side by side, and the bundles of spares.

    Without tensor groups all bundles are alike, and every node gets spares by its number of bundles (D'Hondt's rule).
    """
    groups = spec.world_size // spec.tensor
    bundles = by_place(range(groups + spec.spares), where.get, places or {})
    spares = {bundle for bundle in bundles if bundle >= groups} if spec.tensor > 1 else _fair(spec.spares, where)
    return [bundle for bundle in bundles if bundle not in spares], sorted(spares)


def _fair(count: int, where: Mapping[int, str]) -> set[int]:
    size, chosen = Counter(where.values()), set[int]()
    for _ in range(count):
        taken = Counter(where[bundle] for bundle in chosen)
        left = sorted(where.keys() - chosen)
        chosen.add(max(left, key=lambda bundle: (size[where[bundle]] / (taken[where[bundle]] + 1), bundle)))
    return chosen


def choice(spec: GangSpec, member: Member, spares: Sequence[Spare]) -> Spare | None:
    """The spare that may take a rank whose actor died; None: there is none."""
    ready = [spare for spare in spares if spare.node is not None]
    near = [spare for spare in ready if spare.node == member.node]
    if near or spec.tensor > 1 or member.snapshots is not None:
        return near[0] if near else None
    return ready[0] if ready else None


class Spares:
    """The spares of one gang, from its placement to its end."""

    def __init__(self, spec: GangSpec, settled: Callable[[], Awaitable[None]]) -> None:
        """`settled()` returns when what `all` holds now is in the journal."""
        self.spec = spec
        self.all: list[Spare] = []
        self._settled = settled
        self._group: Any = None
        self._training = asyncio.Event()

    def begin(self, group: Any, bundles: Sequence[int] = ()) -> None:
        """Maintain those that are known; when none is, one in each of these bundles of the placement group."""
        self._group = group
        self.all = self.all or [Spare(bundle) for bundle in bundles]
        for spare in self.all:
            self._maintain(spare)

    def find(self) -> None:
        """Find the actors of spares that a dead supervisor left."""
        for spare in self.all:
            actor = find_actor(spare.name) if spare.name else None
            spare.handle = None if actor is None else RankHandle(actor)
            spare.node = spare.node if spare.handle is not None else None

    def allow(self, training: bool) -> None:
        """Allow making spares while `training`, or forbid it."""
        if training:
            self._training.set()
        else:
            self._training.clear()

    def promote(self, member: Member) -> Spare | None:
        """The spare that takes a rank whose actor died; a new spare is made in the rank's bundle. None when no spare may."""
        spare = choice(self.spec, member, self.all)
        if spare is None:
            return None
        if spare.maintaining:
            spare.maintaining.cancel()
        self.all[self.all.index(spare)] = fresh = Spare(member.bundle)
        self._maintain(fresh)
        return spare

    def lose(self, node: str | None) -> None:
        """Mark the spares on a node that is gone as not ready."""
        for spare in self.all:
            spare.node = None if spare.node == node else spare.node

    async def end(self) -> list[RankHandle]:
        """Stop maintaining spares; returns their actors."""
        tasks = [spare.maintaining for spare in self.all if spare.maintaining]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return [spare.handle for spare in self.all if spare.handle is not None]

    def _maintain(self, spare: Spare) -> None:
        spare.maintaining = asyncio.get_running_loop().create_task(self._stand_by(spare))

    async def _stand_by(self, spare: Spare) -> None:
        """Keep an actor in this place, and replace it if it dies. Each pull renews its lease."""
        from ray.exceptions import RayError

        while True:
            try:
                handle = spare.handle or await self._make(spare)
                spare.node = await handle.stand_by()
                while True:
                    await handle.pull(0, self.spec.lease_s / 3)
            except (RayError, TimeoutError):
                await self._lose(spare)
            await asyncio.sleep(AGAIN_S)

    async def _make(self, spare: Spare) -> RankHandle:
        await self._training.wait()
        spare.name = spare_name(self.spec.name, uuid4().hex[:8])
        await self._settled()
        making = asyncio.ensure_future(asyncio.to_thread(make_actor, self.spec, self._group, spare.bundle, spare.name))
        try:
            spare.handle = RankHandle(await asyncio.shield(making))
        except asyncio.CancelledError:
            spare.handle = RankHandle(
                await making
            )  # the thread continues when the task is cancelled, so keep the actor that it makes
            raise
        return spare.handle

    async def _lose(self, spare: Spare) -> None:
        dead, spare.handle, spare.node = spare.handle, None, None
        if dead is not None:
            await asyncio.to_thread(kill, dead.actor)
